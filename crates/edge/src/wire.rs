//! The bytes of a connection, before hyper sees them: heads that two readers could read differently, or that hyper
//! would answer in its own way, are found here and answered in the one shape of errors.

mod chunks;
mod head;
mod requests;

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::requests::{Fault, Requests};
use crate::deadline::{DeadlineIo, Meter};
use crate::{ApiError, Limits};

/// A socket that hands on whole heads, and only valid ones.
///
/// hyper has no hook for a head that it does not take. In the place of such a head goes a valid one, whose request is
/// answered with the fault: so the answer stands in its order, has its id, is logged, counted and limited as any other.
#[derive(Debug)]
pub(crate) struct Wire {
    io: DeadlineIo,
    meter: Arc<Meter>,
    requests: Requests,
    /// Read, and not handed on yet.
    held: BytesMut,
    /// Bytes of `held` that may be handed on.
    ready: usize,
    faults: Arc<Faults>,
    over: Option<Over>,
}

/// Nothing more is read: no request could be told from the rest of the faulty one.
#[derive(Clone, Copy, Debug)]
enum Over {
    /// The stand-in is the last request.
    Answering,
    BrokenBody,
}

/// The fault of a connection's last request, on its way to where that is answered.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// The place of the request, from one; zero: there is none.
    place: AtomicU64,
    /// Requests that were asked about.
    asked: AtomicU64,
    error: Mutex<Option<ApiError>>,
}

impl Faults {
    /// To be asked once for every request, in their order.
    pub fn of_next_request(&self) -> Option<ApiError> {
        let place = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        if self.place.load(Ordering::Acquire) != place {
            return None;
        }
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, place: u64, error: ApiError) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.place.store(place, Ordering::Release);
    }
}

impl Wire {
    pub fn new(io: DeadlineIo, meter: Arc<Meter>, limits: &Limits, faults: Arc<Faults>) -> Self {
        let requests = Requests::new(limits.head_read_bytes_max(), limits.header_bytes_max);
        Self { io, meter, requests, held: BytesMut::new(), ready: 0, faults, over: None }
    }

    /// Hands on what was held back.
    fn release(&mut self, buf: &mut ReadBuf<'_>) {
        let count = self.ready.min(buf.remaining());
        buf.put_slice(&self.held[..count]);
        self.held.advance(count);
        self.ready -= count;
        if self.held.is_empty() {
            // Connections that are idle hold no buffer.
            self.held = BytesMut::new();
        }
    }

    /// Puts the stand-in behind what may be handed on.
    fn end(&mut self, fault: Fault) {
        let bad = self.held.split_off(self.ready);
        match fault {
            Fault::Head(error) => {
                let stand_in = head::stand_in(&bad);
                self.ready += stand_in.len();
                self.held.extend_from_slice(&stand_in);
                self.faults.put(self.requests.heads + 1, error);
                self.over = Some(Over::Answering);
            }
            Fault::Body => self.over = Some(Over::BrokenBody),
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.held.is_empty() {
            this.meter.bytes_read();
        }
        loop {
            if this.ready > 0 {
                this.release(buf);
                return Poll::Ready(Ok(()));
            }
            match this.over {
                None => {}
                // The answer ends the connection.
                Some(Over::Answering) => return Poll::Pending,
                Some(Over::BrokenBody) => {
                    let message = "the chunked coding of the body is broken";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, message)));
                }
            }
            let before = buf.filled().len();
            ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
            let read = &buf.filled()[before..];
            if read.is_empty() {
                return Poll::Ready(Ok(()));
            }
            // As a rule nothing is held, and all of it is handed on as it is.
            let (passed, fault) = if this.held.is_empty() {
                let (passed, fault) = this.requests.advance(read);
                this.held.extend_from_slice(&read[passed..]);
                buf.set_filled(before + passed);
                (passed, fault)
            } else {
                this.held.extend_from_slice(read);
                buf.set_filled(before);
                let (passed, fault) = this.requests.advance(&this.held);
                this.ready = passed;
                (0, fault)
            };
            if let Some(fault) = fault {
                this.end(fault);
            }
            if passed > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
