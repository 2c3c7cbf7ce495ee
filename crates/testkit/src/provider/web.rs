use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::HANG;
use crate::journal::{Tried, TriedJournal, WebAnswer};

/// A provider on a real socket that takes webhooks, answers each attempt as it is told to, and journals it before it
/// answers.
///
/// Its URL names the life of the gateway that posts to it, so that the journal tells attempts of a process that was
/// killed from those of the next, even when they are read late.
#[derive(Debug, Clone)]
pub struct WebProvider {
    pub address: SocketAddr,
    journal: Arc<Mutex<TriedJournal>>,
    late: Duration,
}

/// One request, as far as it matters here.
#[derive(Debug, Default)]
struct Hook {
    life: Option<u32>,
    id: Option<tidegate_domain::MessageId>,
    number: Option<u32>,
    message: String,
}

impl WebProvider {
    /// `answer` is asked for every attempt, with the answer left open. What is late is answered after `late`.
    pub fn start(
        late: Duration,
        answer: impl Fn(&Tried) -> WebAnswer + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let provider = Self { address: listener.local_addr()?, journal: Arc::default(), late };
        let (serving, answer) = (provider.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (provider, answer) = (serving.clone(), answer.clone());
                // Whatever ends a connection is the gateway's business, or was meant.
                std::thread::spawn(move || provider.serve(stream, &*answer));
            }
        });
        Ok(provider)
    }

    pub fn url(&self, life: u32) -> String {
        format!("http://{}/{life}", self.address)
    }

    pub fn journal(&self) -> TriedJournal {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn serve(&self, mut stream: TcpStream, answer: &dyn Fn(&Tried) -> WebAnswer) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        loop {
            let hook = read(&mut reader)?;
            let Hook { life: Some(life), id: Some(id), number: Some(number), message } = hook else {
                self.note(|journal| journal.nonsense += 1);
                return None;
            };
            let mut tried = Tried { life, id, number, message: message.into(), answer: WebAnswer::Cut };
            tried.answer = answer(&tried);
            let status = match tried.answer {
                WebAnswer::Take | WebAnswer::TakeAndForget | WebAnswer::Late => 200,
                WebAnswer::Fail | WebAnswer::TakeAndFail => 503,
                WebAnswer::Refuse => 410,
                WebAnswer::Stall | WebAnswer::Cut => 0,
            };
            let kind = tried.answer;
            self.note(|journal| journal.attempts.push(tried));
            match kind {
                WebAnswer::Cut => return None,
                WebAnswer::Stall => return stall(&mut reader),
                WebAnswer::Late => std::thread::sleep(self.late),
                _ => (),
            }
            let text = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(text.as_bytes()).ok()?;
        }
    }

    fn note(&self, change: impl FnOnce(&mut TriedJournal)) {
        change(&mut self.journal.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Until the other side has had enough.
fn stall(reader: &mut BufReader<TcpStream>) -> Option<()> {
    reader.get_ref().set_read_timeout(Some(HANG)).ok()?;
    let mut rest = [0; 64];
    while reader.read(&mut rest).ok()? > 0 {}
    None
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Hook> {
    let (mut hook, mut length, mut line) = (Hook::default(), 0, String::new());
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let text = line.trim_end();
        if let Some(target) = text.strip_prefix("POST /") {
            hook.life = target.split(' ').next().and_then(|life| life.parse().ok());
        } else if let Some((name, value)) = text.split_once(':') {
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().ok()?,
                "webhook-id" => hook.id = value.parse().ok(),
                "tidegate-attempt" => hook.number = value.parse().ok(),
                _ => (),
            }
        } else if text.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    hook.message = String::from_utf8(body).ok()?;
    Some(hook)
}
