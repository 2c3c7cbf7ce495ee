//! Bodies are bytes, and they come back as they went in.

use bytes::Bytes;
use tidegate_domain::Body;

use super::steps::{Draft, sms};
use crate::Harness;

pub async fn bodies_return_byte_for_byte(h: &Harness) {
    for body in odd_bodies() {
        let id = h.put(with_body(body.clone())).await;
        assert_eq!(h.record(id).await.body, Body::Whole(body.clone()));
        let claim = h.claim_one().await;
        assert_eq!((claim.id, claim.body.as_ref()), (id, Some(&body)));
        h.deliver(&claim).await;
        assert_eq!(h.record(id).await.body, Body::Whole(body.clone()));
    }
}

pub async fn a_mebibyte_returns_byte_for_byte(h: &Harness) {
    let body: Bytes = (0u32..1 << 18).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    assert_eq!(body.len(), 1 << 20);
    let id = h.put(with_body(body.clone())).await;
    assert!(h.claim_one().await.body == Some(body.clone()), "the claim's body differs");
    assert!(h.record(id).await.body == Body::Whole(body), "the record's body differs");
}

pub async fn bodies_survive_a_reopen(h: &Harness) {
    let bodies = odd_bodies();
    let ids = h.put_all(bodies.iter().cloned().map(with_body)).await;
    h.reopen().await.expect("reopen");
    let claimed: Vec<_> = h.claim(64).await.into_iter().map(|claim| claim.body).collect();
    assert_eq!(claimed, bodies.iter().cloned().map(Some).collect::<Vec<_>>());
    for (id, body) in ids.into_iter().zip(bodies) {
        assert_eq!(h.record(id).await.body, Body::Whole(body.clone()));
    }
}

fn odd_bodies() -> Vec<Bytes> {
    let every_byte: Vec<u8> = (0..=255).collect();
    vec![
        Bytes::new(),
        Bytes::from_static(b"\0"),
        Bytes::from_static(b"\xff\xfe not utf-8 \xc3\x28"),
        Bytes::from_static("'; DROP TABLE message; -- \u{1f30a}\r\n".as_bytes()),
        Bytes::from(every_byte.repeat(40)),
    ]
}

fn with_body(body: Bytes) -> Draft {
    let mut draft = sms("");
    draft.0.body = body;
    draft
}
