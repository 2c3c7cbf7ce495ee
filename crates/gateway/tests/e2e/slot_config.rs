use serde_json::{Value, json};
use tempfile::tempdir;

use crate::client;
use crate::gateway::start;
use crate::principals::api_key;
use crate::slots::fields;

const PATH: &str = "/admin/rate-limit/config";

#[test]
fn versions_are_kept_and_capacity_moves_both_ways() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    assert_eq!(gateway.get(PATH).status, 404);
    let put = |max: u32| {
        let answer = gateway.post(PATH, &json!({"maxPerWindow": max, "windowSize": "PT4S"}));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    };
    assert_eq!((&put(1)["version"], &put(2)["version"]), (&json!(1), &json!(2)));
    let shown = gateway.get("/admin/rate-limit/config?name=default").json();
    assert_eq!((&shown["configName"], &shown["version"]), (&json!("default"), &json!(2)));
    assert_eq!((&shown["windowSize"], &shown["maxPerWindow"]), (&json!("PT4S"), &json!(2)));
    assert_eq!(shown["headroomWindows"], 1_000_000);
    let versions: Vec<_> =
        shown["versions"].as_array().unwrap().iter().map(|v| v["maxPerWindow"].as_u64().unwrap()).collect();
    assert_eq!(versions, [2, 1]);
    let window = |event: &str| {
        let asked = json!({"eventId": event, "requestedTime": "2025-06-01T12:00:00Z"});
        gateway.post("/api/v1/slots", &asked).json()["windowStart"].as_str().unwrap()[17..19].to_owned()
    };
    assert_eq!([window("a"), window("b"), window("c")], ["00", "00", "04"]);
    put(3);
    assert_eq!(window("d"), "00");
    put(1);
    assert_eq!(window("e"), "08");
}

#[test]
fn another_window_size_waits_for_the_slots_that_lie_ahead() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let put = |size: &str| gateway.post(PATH, &json!({"maxPerWindow": 1, "windowSize": size}));
    assert_eq!(put("PT4S").status, 200);
    let asked = json!({"eventId": "a", "requestedTime": "2099-01-01T00:00:00Z"});
    assert_eq!(gateway.post("/api/v1/slots", &asked).status, 200);
    let refused = put("PT8S");
    let body = refused.json();
    assert_eq!((refused.status, &body["code"]), (409, &json!("window_size_in_use")), "{refused:?}");
    assert_eq!((&body["windowSize"], &body["until"]), (&json!("PT4S"), &json!("2099-01-01T00:00:04.000Z")));
    assert_eq!(put("PT4S").status, 200);
    assert_eq!(gateway.delete("/api/v1/slots/a").status, 200);
    assert_eq!(put("PT8S").status, 200);
    assert_eq!(gateway.get(PATH).json()["windowSize"], "PT8S");
}

#[test]
fn closed_times_have_no_slots() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let config = json!({
        "configName": "office", "maxPerWindow": 5, "windowSize": "PT1H",
        "blackouts": [{"from": "2025-06-02T07:00:00Z", "to": "2025-06-02T08:30:00Z"}],
        "businessHours": {"timeZone": "Europe/Berlin", "days": ["MON", "TUE"], "from": "09:00", "to": "17:00"}
    });
    let stored = gateway.post(PATH, &config);
    assert_eq!(stored.status, 200, "{stored:?}");
    let shown = gateway.get("/admin/rate-limit/config?name=office").json();
    assert_eq!(shown["businessHours"], config["businessHours"]);
    assert_eq!(shown["blackouts"][0]["to"], "2025-06-02T08:30:00.000Z");
    // A Sunday; Monday opens at seven, is blacked out until half past eight, and nine is the next whole hour.
    let asked = json!({"eventId": "a", "configName": "office", "requestedTime": "2025-06-01T12:00:00Z"});
    let slot = gateway.post("/api/v1/slots", &asked).json();
    assert_eq!(slot["windowStart"], "2025-06-02T09:00:00.000Z", "{slot}");
}

#[test]
fn every_wrong_field_of_a_configuration_is_named() {
    let dir = tempdir().unwrap();
    let gateway = start(dir.path());
    let wrong = json!({
        "configName": "", "maxPerWindow": 0, "windowSize": "P1M", "headroomWindows": -1, "colour": "red",
        "blackouts": [{"from": "2025-06-02T07:00:00Z", "to": "2025-06-02T07:00:00Z"}, {"from": "now"}],
        "businessHours": {"timeZone": "UTC", "days": "MON", "from": "09:00"}
    });
    let answer = gateway.post(PATH, &wrong);
    let named = [
        "blackouts[0].to",
        "blackouts[1].from",
        "blackouts[1].to",
        "businessHours.days",
        "businessHours.to",
        "colour",
        "configName",
        "headroomWindows",
        "maxPerWindow",
        "windowSize",
    ];
    assert_eq!((answer.status, fields(&answer)), (400, named.map(str::to_owned).to_vec()));
    assert!(answer.text.contains("months"), "{answer:?}");
    let wrong_of = |field: &str, value: Value| {
        let mut config = json!({"maxPerWindow": 1, "windowSize": "P1D"});
        config[field] = value;
        let answer = gateway.post(PATH, &config);
        assert_eq!((answer.status, fields(&answer)), (400, vec![field.to_owned()]), "{answer:?}");
        answer.text
    };
    assert!(wrong_of("windowSize", json!("P367D")).contains("at most"));
    assert!(wrong_of("windowSize", json!(4)).contains("must be a string"));
    let hours =
        |zone: &str, day: &str| json!({"timeZone": zone, "days": [day], "from": "9:00", "to": "17:00"});
    let hopeless = json!({"timeZone": "Mars/Base", "days": ["MOON"], "from": "25:00", "to": "9:61"});
    let config = json!({"maxPerWindow": 1, "windowSize": "P1D", "businessHours": hopeless});
    let answer = gateway.post(PATH, &config);
    let named = ["days", "from", "timeZone", "to"].map(|part| format!("businessHours.{part}"));
    assert_eq!((answer.status, fields(&answer)), (400, named.to_vec()), "{answer:?}");
    for part in ["Mars/Base", "MOON", "25:00", "9:61"] {
        assert!(answer.text.contains(part), "{answer:?}");
    }
    assert!(wrong_of("businessHours", hours("UTC", "MON")).contains("never open"), "a day in eight hours");
    assert_eq!(gateway.get(PATH).status, 404, "nothing was stored");
}

#[test]
fn only_admins_see_and_change_configurations_and_quotas() {
    let dir = tempdir().unwrap();
    let (admin, user) = (api_key(dir.path()), api_key(dir.path()));
    let principal = |name: &str, role: &str, hash: &str| {
        format!("[[principals]]\nname = \"{name}\"\nrole = \"{role}\"\napi_key_hashes = [\"{hash}\"]\n")
    };
    let config = principal("ops", "ADMIN", &admin.1) + &principal("app", "USER", &user.1);
    std::fs::write(dir.path().join("tidegate.toml"), config).unwrap();
    let gateway = start(dir.path());
    let (admin, user) = ([("X-Api-Key", admin.0.as_str())], [("X-Api-Key", user.0.as_str())]);
    let config = json!({"maxPerWindow": 1, "windowSize": "PT4S"});
    let slot = json!({"eventId": "a", "requestedTime": "2025-06-01T12:00:00Z"});
    for path in [PATH, "/admin/rate-limit/cache/flush"] {
        assert_eq!(client::post(gateway.address, path, &user, &config).status, 403);
        assert_eq!(client::post(gateway.address, path, &[], &config).status, 401);
        assert_eq!(client::post(gateway.address, path, &admin, &config).status, 200);
    }
    assert_eq!(client::get(gateway.address, PATH, &user).status, 403);
    assert_eq!(client::post(gateway.address, "/api/v1/slots", &user, &slot).status, 200);
    assert_eq!(client::post(gateway.address, "/api/v1/slots", &[], &slot).status, 401);
    let delete = |headers| client::exchange(gateway.address, "DELETE", "/api/config/bob", headers, "").status;
    assert_eq!((delete(&user), delete(&admin)), (403, 404));
}
