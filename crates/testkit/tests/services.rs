//! The private servers do what the tests that use them count on.

use std::time::Duration;

use tidegate_testkit::HANG;
use tidegate_testkit::services::{Cluster, FaultyProxy, Postgres, PostgresOptions, Redis, RedisOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

const SHORT: Duration = Duration::from_millis(100);

#[test]
fn a_redis_is_killed_and_restarted_on_its_port() {
    let mut redis = Redis::start().unwrap();
    assert_eq!(redis.ask(&["SET", "a", "b"]).unwrap(), "+OK\r\n");
    redis.kill().unwrap();
    assert!(redis.ask(&["PING"]).is_err());
    redis.restart().unwrap();
    assert_eq!(redis.ask(&["GET", "a"]).unwrap(), "$-1\r\n", "nothing is kept");
}

#[test]
fn a_redis_may_want_a_password_or_be_a_cluster() {
    let options = RedisOptions { password: Some("open sesame".to_owned()), ..RedisOptions::default() };
    let redis = Redis::start_with(options).unwrap();
    assert_eq!(redis.ask(&["PING"]).unwrap(), "+PONG\r\n");
    let cluster =
        Redis::start_with(RedisOptions { cluster: Cluster::AllSlots, ..RedisOptions::default() }).unwrap();
    let refused = cluster.ask(&["MGET", "a", "b"]).unwrap();
    assert!(refused.starts_with("-CROSSSLOT"), "{refused}");
}

#[test]
fn a_postgres_is_killed_and_restarted_with_what_it_has() {
    let mut postgres = Postgres::start(PostgresOptions { durable: true, ..Default::default() }).unwrap();
    let name = postgres.new_name();
    postgres.sql("postgres", &format!("CREATE DATABASE {name}")).unwrap();
    postgres.sql(&name, "CREATE TABLE kept AS SELECT 7 AS n").unwrap();
    assert_eq!(postgres.sql(&name, "SHOW fsync").unwrap(), "on\n");
    postgres.kill().unwrap();
    assert!(postgres.sql(&name, "SELECT 1").is_err());
    postgres.restart().unwrap();
    assert_eq!(postgres.sql(&name, "SELECT n FROM kept").unwrap(), "7\n");
}

#[test]
fn no_server_outlives_whoever_dropped_it() {
    let redis = Redis::start().unwrap();
    let postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let addresses = [redis.address, postgres.address];
    drop((redis, postgres));
    for address in addresses {
        assert!(std::net::TcpStream::connect(address).is_err());
    }
}

#[tokio::test]
async fn a_proxy_stalls_cuts_and_heals() {
    let redis = Redis::start().unwrap();
    let proxy = FaultyProxy::start(redis.address).await.unwrap();
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    let mut answer = [0; 7];
    stream.write_all(b"PING\r\n").await.unwrap();
    timeout(HANG, stream.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"+PONG\r\n");

    proxy.stall();
    stream.write_all(b"PING\r\n").await.unwrap();
    assert!(timeout(SHORT, stream.read_exact(&mut answer)).await.is_err(), "it went through");
    proxy.heal();
    timeout(HANG, stream.read_exact(&mut answer)).await.unwrap().unwrap();

    proxy.cut();
    assert_eq!(timeout(HANG, stream.read(&mut answer)).await.unwrap().unwrap_or(0), 0);
    proxy.heal();
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    stream.write_all(b"PING\r\n").await.unwrap();
    timeout(HANG, stream.read_exact(&mut answer)).await.unwrap().unwrap();
}
