use std::net::TcpListener;
use std::path::Path;

use tempfile::tempdir;

use crate::gateway::command;

/// A file with a fault in every marked line. What stands behind `#!` has to be told of that line; several, with `|`
/// between them, each in a problem of its own.
const FAULTS: &str = r##"
[server]
listen = "nowhere"                    #! server.listen: "nowhere" is not an address with a port; write
body_bytes_max = 1                    #! server.body_bytes_max: 1 is out of range; choose 64 to
trusted_proxies = ["10.0.0.1/8", "x"] #! server.trusted_proxies: "10.0.0.1/8" has bits set | server.trusted_proxies: "x" is not a network; write
idle_timeout_ms = "long"              #! server.idle_timeout_ms: must be a whole number, not text
lisen = "127.0.0.1:80"                #! server.lisen: no such key; did you mean "server.listen"?
[ledger]
kind = "embedded"
path = "/dev/null/data"               #! ledger.path: /dev/null is not a directory; choose
sync = "fulll"                        #! ledger.sync: "fulll" is not known; choose "full" or "off"; did you mean "full"?
retention_ms = 0                      #! ledger.retention_ms: 0 is out of range; choose
[ledgr]                               #! ledgr: no such section; did you mean "ledger"?
[postgres]
url = "postgres:///s3cret"            #! postgres.url: the URL names no host; such as
tls_roots = "absent.pem"              #! postgres.tls_roots: is for a connection over TLS; write | postgres.tls_roots: absent.pem:
[redis]
url = "http://:s3cret@db"             #! redis.url: is not the URL of a Redis; such as
prefix = "a{b}"                       #! redis.prefix: "a{b}" must be
call_timeout_ms = 0                   #! redis.call_timeout_ms: 0 is out of range
[bus]
kind = "kafk"                         #! bus.kind: "kafk" is not known; choose
[kafka]
brokers = ["k1", "k2:0"]              #! kafka.brokers: "k1" is not an address with a port; such as | kafka.brokers: "k2:0" is not
publish_timeout_ms = 3600000          #! kafka.publish_timeout_ms: 3600000 is out of range
tls = "on"
tls_roots = "absent.pem"              #! kafka.tls_roots: absent.pem:
tls_certificate = "absent.crt"        #! kafka.tls_certificate: has no key; set kafka.tls_key
sasl_mechanism = "SCRAM-SHA-1"        #! kafka.sasl_mechanism: "SCRAM-SHA-1" is not known; choose
password = "s3cret"                   #! kafka.password: is for a user, and there is none; set
[rabbitmq]
url = "amqp://:s3cret@h:port/"        #! rabbitmq.url: the URL is not of the form amqp://
exchange = "amq.mine"                 #! rabbitmq.exchange: "amq.mine" must
[webhook]
url = "http://10.1.2.3/s3cret"        #! webhook.url: 10.1.2.3 is not on the public internet, and no allowed network holds it; add its network
secrets = ["s3cret"]                  #! webhook.secrets: must be whsec_ and the base64
headers = ["Ho st: s3cret", "none"]   #! webhook.headers: an entry has no colon | webhook.headers:
allow = ["10.0.0.0/33"]               #! webhook.allow: "10.0.0.0/33" is not a network; write
ports = ["http"]                      #! webhook.ports: "http" is not a port; choose
ca_file = "absent.pem"                #! webhook.ca_file: absent.pem:
[inbox]
secrets = ["s3cret"]                  #! inbox.secrets: a secret of the inbox is shorter than 16 bytes; such as
[stats]
warning_webhook = "s3cret"            #! stats.warning_webhook: must begin with http:// or https://; such as
depth_warning = -1                    #! stats.depth_warning: -1 is out of range
[log]
level = "loud"                        #! log.level: "loud": "loud" is not a level; choose
[[principals]]
name = "ann"
role = "ROOT"                         #! principals.role: must be a role; choose
password_hash = "$argon2id$v=19$m=1$c2FsdHNhbHQ$aGFzaGhhc2g" #! principals.password_hash: the password hash has to be an argon2id
[[principals]]
name = "ann"                          #! principals.name: "ann" is there twice, also in tidegate.toml:
role = "USER"
api_key_hashes = ["s3cret"]           #! principals.api_key_hashes: must be a list of SHA-256 hashes
[[queues]]
name = "jobs"
channel = "smoke"                     #! queues.channel: "smoke" is not known; choose
[[queues]]
name = "jobs"                         #! queues.name: "jobs" is there twice, also in tidegate.toml:
lease_ms = 5                          #! queues.lease_ms: 5 is no whole number in range; choose
[[queues]]
name = "mail"
channel = "webhook"
topic = "sms-outbound"
[[queues]]
name = "sms"
channel = "log"
topic = "sms-outbound"                #! queues.topic: the queues mail and sms would both travel as "sms-outbound"; give
[[policies]]
name = "writes"
pathPattern = "api"                   #! policies.pathPattern: a path pattern starts with '/', such as
methods = ["PSOT", "GET"]             #! policies.methods: "PSOT" is not known; choose
keyStrategy = "APIKEY"                #! policies.keyStrategy: "APIKEY" is not known; choose
capacity = 0                          #! policies.capacity: a capacity of 0 is out of range; choose
refillTokensPerSecond = "fast"        #! policies.refillTokensPerSecond: must be a number; such as
[[policies]]
name = "writes"                       #! policies.name: "writes" is there twice, also in tidegate.toml:
pathPattern = "/**"
keyStrategy = "IP"
capacity = 5
cost = 6                              #! policies.cost: a cost of 6 never fits a capacity of 5; choose 1 to 5
refillTokensPerSecond = -1            #! policies.refillTokensPerSecond: a refill of -1 tokens per second is out of range
"##;

fn run(dir: &Path, subcommand: &str) -> (Option<i32>, String) {
    // Not on the ledger that the other tests run on: this is about a file alone.
    let output = command(dir).env_clear().arg(subcommand).output().unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[test]
fn every_fault_is_told_with_its_line_and_none_hides_another() {
    let dir = tempdir().unwrap();
    std::fs::write(dir.path().join("tidegate.toml"), FAULTS).unwrap();
    let (code, said) = run(dir.path(), "check-config");
    assert_eq!(code, Some(2), "{said}");
    let mut told: Vec<_> = said.lines().skip(1).map(str::trim).collect();
    let mut missing = Vec::new();
    for (number, line) in FAULTS.lines().enumerate() {
        let Some((_, faults)) = line.split_once("#! ") else { continue };
        for fault in faults.split(" | ") {
            let expected = format!("tidegate.toml:{}: {}", number + 1, fault.trim_end());
            match told.iter().position(|told| told.starts_with(&expected)) {
                Some(place) => drop(told.remove(place)),
                None => missing.push(expected),
            }
        }
    }
    assert!(missing.is_empty() && told.is_empty(), "missing: {missing:#?}\nnot expected: {told:#?}");
    assert!(!said.contains("s3cret"), "{said}");
    // `serve` says the same, in the same words.
    assert_eq!(run(dir.path(), "serve"), (Some(2), said));
}

#[test]
fn what_is_no_toml_is_told_with_line_and_column_and_hides_no_other_line() {
    let dir = tempdir().unwrap();
    let text = "[server]\nlisten = \n[sender]\nbatch = 1\nbatch = 2\n[log]\nlevel = \"loud\"\n";
    std::fs::write(dir.path().join("tidegate.toml"), text).unwrap();
    let (code, said) = run(dir.path(), "check-config");
    assert_eq!(code, Some(2), "{said}");
    for part in [
        "tidegate.toml:2:10: not valid TOML: ",
        "tidegate.toml:5:1: not valid TOML: duplicate key; remove one of them",
        "tidegate.toml:7: log.level: ",
    ] {
        assert!(said.contains(part), "{part}\nnot in\n{said}");
    }
}

/// A gateway that runs with these settings is no fault of them; an operator who starts another one is told.
#[test]
fn an_address_in_use_is_a_warning() {
    let dir = tempdir().unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    std::fs::write(dir.path().join("tidegate.toml"), format!("[server]\nlisten = \"{address}\"\n")).unwrap();
    let (code, said) = run(dir.path(), "check-config");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("warning: server.listen: {address}: ")), "{said}");
}

#[test]
fn a_file_that_can_not_be_read_is_a_problem_of_the_configuration() {
    let dir = tempdir().unwrap();
    std::fs::write(dir.path().join("latin.toml"), b"[log]\nlevel = \"info\"\n# gr\xfc\xdfe\n").unwrap();
    for (file, part) in [
        ("absent.toml", "flag --config: cannot read the configuration absent.toml: "),
        ("latin.toml", "latin.toml:3: is not UTF-8; save the file as UTF-8"),
    ] {
        for subcommand in ["check-config", "serve"] {
            let output =
                command(dir.path()).env_clear().args([subcommand, "--config", file]).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains("1 problem in the configuration:") && said.contains(part), "{said}");
        }
    }
}
