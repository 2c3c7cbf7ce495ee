use std::any::Any;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use axum::Router;
use axum::body::HttpBody;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::Route;
use axum::routing::future::RouteFuture;
use http::header::HeaderValue;
use http::{Method, Uri};
use tidegate_domain::Clock;
use tokio::time::Instant;
use tower::Service;
use tower::layer::layer_fn;
use tower::service_fn;
use tracing::Instrument;

use crate::auth::{Access, Attempt, Authenticator, is_probe, masked};
use crate::bodies::{Bodies, BodyShare};
use crate::connection::{InvalidHead, READ_BUFFER_BYTES};
use crate::error::render::{self, render};
use crate::network::ClientNetwork;
use crate::policies::Question;
use crate::request_id::{RequestId, RequestIds, X_REQUEST_ID};
use crate::tally::{self, Tally};
use crate::{ApiError, Limits, PolicyGate, Principal, Principals, cross_site, head};

/// What stands around the application: request ids, the access log, the shape of errors, checks of the head,
/// authentication, policies. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Edge {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    limits: Limits,
    clock: Arc<dyn Clock>,
    open: bool,
    authenticator: Arc<Authenticator>,
    gate: Option<PolicyGate>,
    bodies: Arc<Bodies>,
    request_ids: RequestIds,
    tally: Tally,
}

/// How far a request got without waiting.
enum Step {
    /// Boxed, like the others that are rare.
    Refused(Box<(ApiError, Option<Question>)>),
    Routed(RouteFuture<Infallible>),
    /// Boxed, so that requests that need not wait are not moved about in its size.
    Limited(Question, Box<(Request, Route)>),
    Unverified(Attempt, Request, Route),
}

/// What is needed of a request once the application has taken it.
struct Exchange {
    edge: Arc<Inner>,
    id: HeaderValue,
    method: Method,
    uri: Uri,
    started: Instant,
    /// Given back with the answer.
    _share: Option<BodyShare>,
}

impl Edge {
    /// With no `principals`, every request is the local admin's; then `open` has to be true, so that only
    /// requests for this very machine are answered. Metrics go to the recorder installed by now.
    pub fn new(limits: Limits, principals: Principals, clock: Arc<dyn Clock>, open: bool) -> Self {
        Self::with_policies(limits, principals, clock, open, None)
    }

    /// The same with policies in front of every route but the probes, unknown ones included.
    pub fn with_policies(
        limits: Limits,
        principals: Principals,
        clock: Arc<dyn Clock>,
        open: bool,
        gate: Option<PolicyGate>,
    ) -> Self {
        let trusted_proxies = gate.as_ref().map(|gate| gate.trusted_proxies().to_vec()).unwrap_or_default();
        let authenticator = Arc::new(Authenticator::new(principals, trusted_proxies, clock.clone()));
        let (request_ids, tally) = (RequestIds::new(), Tally::new());
        let bodies = Bodies::new(&limits);
        Self {
            inner: Arc::new(Inner { limits, clock, open, authenticator, gate, bodies, request_ids, tally }),
        }
    }

    /// The same routes, behind the edge. Routes added afterwards are not.
    ///
    /// One layer does it all: axum boxes each layer of each route, per request.
    pub fn wrap(&self, router: Router) -> Router {
        let edge = self.inner.clone();
        router.layer(layer_fn(move |mut route: Route| {
            let edge = edge.clone();
            service_fn(move |request: Request| edge.clone().respond(request, &mut route))
        }))
    }

    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// The whole answer to a connection whose request is not even read.
    pub(crate) fn refusal(&self, error: &ApiError) -> Vec<u8> {
        let body = render::body(error, "", self.inner.clock.now());
        let (status, id) = (error.status(), self.inner.request_ids.make());
        let (reason, id) = (status.canonical_reason().unwrap_or_default(), id.to_str().unwrap_or_default());
        let (retry_after_s, length) = (error.retry_after_s().unwrap_or(1), body.len());
        format!(
            "HTTP/1.1 {} {reason}\r\nretry-after: {retry_after_s}\r\nconnection: close\r\n\
             content-type: application/json\r\nx-request-id: {id}\r\ncontent-length: {length}\r\n\r\n{body}",
            status.as_str()
        )
        .into_bytes()
    }

    /// Whether this address is one of the proxies that speak for others.
    pub(crate) fn is_trusted_proxy(&self, ip: IpAddr) -> bool {
        self.inner.authenticator.is_trusted_proxy(ip)
    }

    /// Passwords put through argon2id so far.
    pub fn password_verifications(&self) -> u64 {
        self.inner.authenticator.verifications()
    }
}

impl Inner {
    fn respond(
        self: Arc<Self>,
        mut request: Request,
        route: &mut Route,
    ) -> impl Future<Output = Result<Response, Infallible>> + Send + use<> {
        let started = Instant::now();
        let id = self.request_ids.take_or_make(request.headers());
        let span = tracing::info_span!("request", id = id.to_str().unwrap_or_default());
        let (method, uri) = (request.method().clone(), request.uri().clone());
        request.extensions_mut().insert(RequestId(id.clone()));
        let share = self.share_of(&request);
        if let Some(share) = &share {
            request.extensions_mut().insert(share.clone());
        }
        let step = span.in_scope(|| self.step(request, route));
        let exchange = Exchange { edge: self, id, method, uri, started, _share: share };
        finish(step, exchange).instrument(span)
    }

    /// None where no more comes than a connection's read buffer holds, as with most requests.
    fn share_of(&self, request: &Request) -> Option<BodyShare> {
        let body = request.body();
        if body.is_end_stream() || body.size_hint().upper().is_some_and(|max| max <= READ_BUFFER_BYTES as u64)
        {
            return None;
        }
        let client = self.authenticator.client_of(request);
        let is_proxy = self.authenticator.is_trusted_proxy(client);
        Some(self.bodies.share((!is_proxy).then(|| ClientNetwork::of(client))))
    }

    fn step(&self, request: Request, route: &mut Route) -> Step {
        if let Some(InvalidHead(error)) = request.extensions().get() {
            tally::refused("invalid_head");
            return self.refuse(error.clone(), &request);
        }
        let checked = head::check(&request, self.limits.header_bytes_max, self.open)
            .and_then(|()| self.check_site(&request));
        match checked.and_then(|()| self.authenticator.admit(&request)) {
            Err(error) => self.refuse(error, &request),
            Ok(Access::Public) => self.admit(None, request, route),
            Ok(Access::Granted(principal)) => self.admit(Some(principal), request, route),
            Ok(Access::Unverified(attempt)) => Step::Unverified(attempt, request, route.clone()),
        }
    }

    /// Only what goes by who asks is worth anything to a page of another site.
    fn check_site(&self, request: &Request) -> Result<(), ApiError> {
        match self.authenticator.is_public(request.uri().path()) {
            true => Ok(()),
            false => cross_site::check(request),
        }
    }

    /// The sender is known; the policies are next. Most requests of most gateways have none to wait for.
    fn admit(&self, principal: Option<Principal>, mut request: Request, route: &mut Route) -> Step {
        let question = match self.gate_of(&request) {
            Some(gate) => gate.ask(&request, principal.as_ref()),
            None => Ok(None),
        };
        if let Some(principal) = principal {
            request.extensions_mut().insert(principal);
        }
        match question {
            Err(error) => self.refuse(error, &request),
            Ok(None) => Step::Routed(route.call(request)),
            Ok(Some(question)) => Step::Limited(question, Box::new((request, route.clone()))),
        }
    }

    /// The request gets no further, but the policies by address count it.
    fn refuse(&self, error: ApiError, request: &Request) -> Step {
        let question = self.gate_of(request).and_then(|gate| gate.ask_by_address(request));
        Step::Refused(Box::new((error, question)))
    }

    /// None for probes: an orchestrator takes a 429 for an illness, and restarts the gateway.
    fn gate_of(&self, request: &Request) -> Option<&PolicyGate> {
        self.gate.as_ref().filter(|_| !is_probe(request.uri().path()))
    }

    async fn refused(&self, error: ApiError, question: Option<Question>) -> Response {
        let signature = match (&self.gate, question) {
            (Some(gate), Some(question)) => match gate.decide(question).await {
                Ok(signature) => Some((gate, signature)),
                Err(denial) => return denial,
            },
            _ => None,
        };
        self.authenticator.hold(&error).await;
        let mut response = error.into_response();
        if let Some((gate, signature)) = signature {
            gate.sign(Some(signature), &mut response);
        }
        response
    }

    async fn limited(&self, question: Question, waiting: Box<(Request, Route)>) -> Response {
        let Some(gate) = &self.gate else {
            return ApiError::internal("a question without a gate").into_response();
        };
        let signature = match gate.decide(question).await {
            Ok(signature) => signature,
            Err(refusal) => return refusal,
        };
        let (request, mut route) = *waiting;
        let routed = route.call(request);
        let mut response = catch_panic(routed).await;
        gate.sign(Some(signature), &mut response);
        response
    }

    async fn unlimited(&self, routed: RouteFuture<Infallible>) -> Response {
        let mut response = catch_panic(routed).await;
        if let Some(gate) = &self.gate {
            gate.sign(None, &mut response);
        }
        response
    }
}

async fn finish(step: Step, exchange: Exchange) -> Result<Response, Infallible> {
    let edge = &exchange.edge;
    let step = match step {
        Step::Unverified(attempt, request, mut route) => match edge.authenticator.verify(attempt).await {
            Ok(principal) => edge.admit(Some(principal), request, &mut route),
            Err(error) => edge.refuse(error, &request),
        },
        step => step,
    };
    let response = match step {
        Step::Refused(refused) => {
            let (error, question) = *refused;
            edge.refused(error, question).await
        }
        Step::Routed(routed) => edge.unlimited(routed).await,
        Step::Limited(question, waiting) => edge.limited(question, waiting).await,
        Step::Unverified(..) => {
            ApiError::internal("a password was verified and still is not").into_response()
        }
    };
    Ok(exchange.finish(response))
}

impl Exchange {
    fn finish(self, mut response: Response) -> Response {
        let (status, path) = (response.status(), self.uri.path());
        render(&mut response, path, self.edge.clock.now());
        response.headers_mut().insert(X_REQUEST_ID, self.id);
        self.edge.tally.request(&self.method, status);

        let (method, status) = (self.method.as_str(), status.as_u16());
        let micros = || u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        // Never the query nor a body, nor a key in the path: they may hold what a message says or a secret.
        if status >= 500 {
            tracing::info!(method, path = &*masked(path), status, micros = micros(), "answered");
        } else {
            tracing::debug!(method, path = &*masked(path), status, micros = micros(), "answered");
        }
        response
    }
}

/// A handler that panics answers 500; its connection, and the other requests on it, go on.
async fn catch_panic(routed: RouteFuture<Infallible>) -> Response {
    let mut routed = pin!(routed);
    poll_fn(|cx| {
        // The future is dropped after a panic and never polled again.
        match catch_unwind(AssertUnwindSafe(|| routed.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(Ok(response))) => Poll::Ready(response),
            Err(panic) => Poll::Ready(ApiError::internal(panic_text(&*panic)).into_response()),
        }
    })
    .await
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("handler panicked: {}", text.unwrap_or("no message"))
}
