//! The load client against a server of a few lines, which answers, refuses, closes and dies.

use std::net::SocketAddr;

use tidegate_testkit::load::{self, Answer, Repeat, Source, Stop, write_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Answers each connection's requests with these responses, in order, and closes.
async fn server(responses: &'static [&'static str]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                for response in responses {
                    let mut request = [0; 1_024];
                    if !matches!(stream.read(&mut request).await, Ok(1..)) {
                        return;
                    }
                    // Byte by byte, so that the parser meets heads and bodies in pieces.
                    for byte in response.as_bytes() {
                        stream.write_all(&[*byte]).await.expect("a listening client");
                    }
                }
            });
        }
    });
    address
}

/// Sends so many and keeps what comes back.
struct Few {
    wanted: usize,
    answers: Vec<(Option<u16>, String)>,
}

impl Source for Few {
    fn next(&mut self, request: &mut Vec<u8>) -> bool {
        write_request(request, "POST", "/", &[], b"{}");
        self.answers.len() < self.wanted
    }

    fn answered(&mut self, answer: Answer<'_>) {
        self.answers.push(match answer {
            Answer::Response { status, body } => (Some(status), String::from_utf8_lossy(body).into_owned()),
            Answer::Unknown => (None, String::new()),
        });
    }
}

#[tokio::test]
async fn answers_are_counted_and_a_missing_one_is_unknown() {
    let address = server(&[
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut",
    ])
    .await;
    let sources = (0..3).map(|_| Few { wanted: 9, answers: Vec::new() }).collect();
    let (report, sources) = load::run(address, sources, &Stop::default()).await;
    assert_eq!(report.statuses, [(200, 3), (429, 3)].into());
    assert_eq!((report.responses(), report.unknown), (6, 3));
    for source in sources {
        let expected = [(Some(200), "ok".into()), (Some(429), String::new()), (None, String::new())];
        assert_eq!(source.answers, expected);
    }
}

#[tokio::test]
async fn a_closed_connection_is_opened_again() {
    let address = server(&["HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"]).await;
    let (report, _) =
        load::run(address, vec![Few { wanted: 3, answers: Vec::new() }], &Stop::default()).await;
    assert_eq!((report.responses(), report.unknown), (3, 0));
}

#[tokio::test]
async fn a_stopped_load_ends() {
    let address = server(&["HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"; 1_000]).await;
    let stop = Stop::default();
    stop.now();
    let (report, _) = load::run(address, vec![Repeat(b"GET / HTTP/1.1\r\n\r\n".to_vec())], &stop).await;
    assert_eq!(report.responses(), 0);
}

#[tokio::test]
async fn one_request_of_its_own() {
    let address = server(&["HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone"]).await;
    assert_eq!(load::get(address, "/x").await.unwrap(), (404, b"none".to_vec()));
}
