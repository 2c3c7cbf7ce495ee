use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use crate::{Limits, Sent};

/// How long, and for how many bytes, a closed connection is still read from, so that a client in the middle
/// of sending gets to see the answer instead of a reset.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_BYTES_MAX: usize = 256 * 1024;

/// What a connection is doing, as the socket, the application and the watchdog see it together.
///
/// hyper's own header timeout starts with the wait for a request, so it cannot tell an idle client from a
/// slow one, and it makes a new timer for each request. Here a step is a store of one number.
///
/// All three users run inside one connection's task, one after the other: plain loads and stores do.
#[derive(Debug, Default)]
pub(crate) struct Meter(AtomicU64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Accepted, nothing read.
    Fresh,
    /// Some of a request's head was read.
    Head,
    /// The application has the request. It sets its own limits; see `read_body`.
    Busy,
    /// Answered, waiting for the next request.
    Idle,
    /// Closed by us, reading what the client still sends.
    Linger,
}

const PHASE_BITS: u64 = 0b0111;
const BLOCKED_BIT: u64 = 0b1000;
const COUNT_ONE: u64 = 0b1_0000;

impl Meter {
    /// The first byte after silence starts a head. Bytes read while busy are a body or a request ahead of
    /// its turn, which [`crate::wire::Wire`] reports again when its turn has come.
    pub fn bytes_read(&self) {
        if matches!(self.phase(), Phase::Fresh | Phase::Idle) {
            self.enter(Phase::Head);
        }
    }

    pub fn is_in_head(&self) -> bool {
        self.phase() == Phase::Head
    }

    pub fn request_started(&self) {
        self.enter(Phase::Busy);
    }

    pub fn response_ended(&self) {
        self.enter(Phase::Idle);
    }

    fn write_blocked(&self) {
        let word = self.0.load(Ordering::Relaxed);
        if word & BLOCKED_BIT == 0 {
            self.0.store((word | BLOCKED_BIT).wrapping_add(COUNT_ONE), Ordering::Relaxed);
        }
    }

    fn write_progressed(&self) {
        let word = self.0.load(Ordering::Relaxed);
        if word & BLOCKED_BIT != 0 {
            self.0.store((word & !BLOCKED_BIT).wrapping_add(COUNT_ONE), Ordering::Relaxed);
        }
    }

    /// The count in the upper bits makes every step a new number, also the way back to the same phase.
    fn enter(&self, phase: Phase) {
        let word = self.0.load(Ordering::Relaxed);
        self.0.store((word & !PHASE_BITS | phase as u64).wrapping_add(COUNT_ONE), Ordering::Relaxed);
    }

    fn phase(&self) -> Phase {
        match self.0.load(Ordering::Relaxed) & PHASE_BITS {
            0 => Phase::Fresh,
            1 => Phase::Head,
            2 => Phase::Busy,
            3 => Phase::Idle,
            _ => Phase::Linger,
        }
    }
}

/// A socket that reports its steps to the meter.
#[derive(Debug)]
pub(crate) struct DeadlineIo {
    stream: TcpStream,
    meter: Arc<Meter>,
    sent: Sent,
    shut: bool,
    lingered_bytes: usize,
}

impl DeadlineIo {
    pub fn new(stream: TcpStream, meter: Arc<Meter>, sent: Sent) -> Self {
        Self { stream, meter, sent, shut: false, lingered_bytes: 0 }
    }

    fn note_write(&self, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &outcome {
            Poll::Pending => self.meter.write_blocked(),
            Poll::Ready(_) => self.meter.write_progressed(),
        }
        outcome
    }
}

impl AsyncRead for DeadlineIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.meter.bytes_read();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for DeadlineIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.note_write(outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.note_write(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.sent.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.shut {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            self.shut = true;
            self.meter.enter(Phase::Linger);
        }
        let mut scratch = [0; 4096];
        while self.lingered_bytes < LINGER_BYTES_MAX {
            let mut buf = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => self.lingered_bytes += buf.filled().len(),
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Cuts a connection whose phase lasts too long.
///
/// One timer per connection, re-armed only when it fires or when a deadline moves ahead of it: a client that
/// sends request after request never touches the timer wheel.
#[derive(Debug)]
pub(crate) struct Watchdog {
    meter: Arc<Meter>,
    limits: Limits,
    seen: u64,
    since: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl Watchdog {
    pub fn new(meter: Arc<Meter>, limits: Limits) -> Self {
        let since = Instant::now();
        let seen = meter.0.load(Ordering::Relaxed);
        let sleep = Box::pin(tokio::time::sleep_until(since + limits.first_byte_timeout));
        Self { meter, limits, seen, since, sleep }
    }

    /// Ready with what the client was too slow for. To be polled after the connection, each time.
    pub fn poll_cut(&mut self, cx: &mut Context<'_>) -> Poll<&'static str> {
        let word = self.meter.0.load(Ordering::Relaxed);
        if word != self.seen {
            self.seen = word;
            self.since = Instant::now();
        }
        let Some((patience, reason)) = self.patience(word) else { return Poll::Pending };
        let deadline = self.since + patience;
        if deadline < self.sleep.deadline() {
            self.sleep.as_mut().reset(deadline);
        }
        loop {
            ready!(self.sleep.as_mut().poll(cx));
            if Instant::now() >= deadline {
                return Poll::Ready(reason);
            }
            // It was armed for an earlier phase.
            self.sleep.as_mut().reset(deadline);
        }
    }

    fn patience(&self, word: u64) -> Option<(Duration, &'static str)> {
        if word & BLOCKED_BIT != 0 {
            return Some((self.limits.write_timeout, "write_timeout"));
        }
        match self.meter.phase() {
            Phase::Fresh => Some((self.limits.first_byte_timeout, "first_byte_timeout")),
            Phase::Head => Some((self.limits.header_timeout, "header_timeout")),
            Phase::Busy => None,
            Phase::Idle => Some((self.limits.idle_timeout, "idle_timeout")),
            Phase::Linger => Some((LINGER, "linger")),
        }
    }
}
