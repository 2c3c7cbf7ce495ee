use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tidegate_testkit::HANG;

/// A provider that takes webhooks: it answers with the status of the hour, and remembers what came.
#[derive(Clone)]
pub struct Sink {
    pub address: SocketAddr,
    status: Arc<AtomicU16>,
    delay_ms: Arc<AtomicU64>,
    gate: Arc<Gate>,
    seen: Arc<Mutex<Vec<String>>>,
    heads: Arc<Mutex<Vec<String>>>,
}

/// What keeps answers back.
#[derive(Default)]
struct Gate {
    held: Mutex<bool>,
    released: Condvar,
}

impl Sink {
    pub fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sink = Self {
            address: listener.local_addr().unwrap(),
            status: Arc::new(AtomicU16::new(status)),
            delay_ms: Arc::default(),
            gate: Arc::default(),
            seen: Arc::default(),
            heads: Arc::default(),
        };
        let serving = sink.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let sink = serving.clone();
                std::thread::spawn(move || sink.serve(stream));
            }
        });
        sink
    }

    pub fn answer(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    pub fn delay(&self, ms: u64) {
        self.delay_ms.store(ms, Ordering::SeqCst);
    }

    /// From now on, what comes is seen and gets no answer until it is released.
    pub fn hold(&self) {
        *self.gate.held.lock().unwrap() = true;
    }

    pub fn release(&self) {
        *self.gate.held.lock().unwrap() = false;
        self.gate.released.notify_all();
    }

    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    /// The heads of what was seen, in small letters.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        loop {
            let (mut line, mut length, mut head) = (String::new(), 0, String::new());
            loop {
                line.clear();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
                let lower = line.to_ascii_lowercase();
                head.push_str(&lower);
                if let Some(value) = lower.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line == "\r\n" {
                    break;
                }
            }
            let mut body = vec![0; length];
            if reader.read_exact(&mut body).is_err() {
                return;
            }
            // Before anybody can see it: who then changes the status means later ones.
            let status = self.status.load(Ordering::SeqCst);
            self.heads.lock().unwrap().push(head);
            self.seen.lock().unwrap().push(String::from_utf8(body).unwrap());
            std::thread::sleep(Duration::from_millis(self.delay_ms.load(Ordering::SeqCst)));
            self.gate.pass();
            let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}

impl Gate {
    fn pass(&self) {
        let held = self.held.lock().unwrap();
        drop(self.released.wait_timeout_while(held, HANG, |held| *held).unwrap());
    }
}
