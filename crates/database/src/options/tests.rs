#![allow(clippy::unwrap_used)]

use std::path::Path;

use super::*;

fn parse(url: &str) -> PgConnectOptions {
    url.parse().unwrap()
}

fn hosts(url: &str) -> Vec<(String, u16)> {
    parse(url).hosts().iter().map(|host| (host.get_host().to_owned(), host.get_port())).collect()
}

fn pairs(expected: &[(&str, u16)]) -> Vec<(String, u16)> {
    expected.iter().map(|(host, port)| ((*host).to_owned(), *port)).collect()
}

#[test]
fn hosts_of_the_authority_have_ports_of_their_own() {
    for (url, expected) in [
        ("postgres://u:p@h1:5432,h2:5433/db?target_session_attrs=read-write", &[("h1", 5432), ("h2", 5433)][..]),
        ("postgres://u@h1,h2:5433/db", &[("h1", 5432), ("h2", 5433)]),
        ("postgresql://u@[::1]:6000,[fe80::2]/db", &[("[::1]", 6000), ("[fe80::2]", 5432)]),
        ("postgres://u@h1/db?port=7000", &[("h1", 7000)]),
        ("postgres://u@one/db", &[("one", 5432)]),
    ] {
        assert_eq!(hosts(url), pairs(expected), "{url}");
    }
}

#[test]
fn hosts_of_the_query_share_a_port_or_have_their_own() {
    assert_eq!(hosts("postgres:///db?host=h1,h2&port=1,2"), pairs(&[("h1", 1), ("h2", 2)]));
    assert_eq!(hosts("postgres:///db?host=h1%2Ch2&port=7"), pairs(&[("h1", 7), ("h2", 7)]));
    let sockets = parse("postgres:///db?host=/run/a,/run/b&user=me");
    let directories: Vec<_> = sockets.hosts().iter().map(|host| host.get_socket().unwrap().as_path()).collect();
    assert_eq!(directories, [Path::new("/run/a"), Path::new("/run/b")]);
    let socket = parse("postgres://me:p%20w@%2Frun%2Fa:5433/db");
    assert_eq!((socket.hosts()[0].get_socket().unwrap().as_path(), socket.hosts()[0].get_port()), (Path::new("/run/a"), 5433));
}

#[test]
fn every_host_has_the_login_the_database_and_the_parameters() {
    let options =
        parse("postgres://me:secret@h1,h2/shop?sslmode=verify-full&connect_timeout=2&keepalives_idle=5&application_name=x");
    for host in options.hosts() {
        assert_eq!((host.get_username(), host.get_database(), host.get_application_name()), ("me", Some("shop"), Some("x")));
        assert!(matches!(host.get_ssl_mode(), sqlx::postgres::PgSslMode::VerifyFull));
    }
    assert_eq!((options.target(), options.deadline), (SessionTarget::Any, Duration::from_secs(2)));
    let primary = parse("postgres://h1/db?target_session_attrs=primary");
    assert_eq!(primary.target(), SessionTarget::Primary);
}

#[test]
fn what_is_no_url_of_postgres_is_refused_without_its_password() {
    for (url, expected) in [
        ("mysql://u:hidden@h/d", "is not a URL such as"),
        ("hidden", "is not a URL such as"),
        ("postgres://u:hidden@h:x/d", "is not a URL such as"),
        ("postgres://u:hidden@h1,,h2/d", "has an empty host"),
        ("postgres:///d?host=a,b&port=1,2,3&password=hidden", "has another number of ports"),
        ("postgres://u:hidden@h/d?target_session_attrs=fast", "target_session_attrs that is not any, read-write or primary"),
        ("postgres://u:hidden@h/d?connect_timeout=soon", "connect_timeout that is not a number"),
    ] {
        let refused = url.parse::<PgConnectOptions>().unwrap_err().to_string();
        assert!(refused.contains(expected) && !refused.contains("hidden"), "{url}: {refused}");
    }
}

#[test]
fn settings_are_made_by_a_statement_and_the_last_value_counts() {
    let options = parse("postgres://h1,h2/db?target_session_attrs=read-write").options([("jit", "off"), ("role", "a'b")]);
    let options = options.options([("jit", "on")]);
    assert_eq!(
        options.opening().unwrap(),
        "SELECT set_config('role', 'a''b', false), set_config('jit', 'on', false); SELECT current_setting('transaction_read_only') = 'off'"
    );
    assert_eq!(parse("postgres://h1/db").opening(), None);
}

#[tokio::test]
async fn a_silent_host_delays_the_next_one_only_briefly_and_no_host_at_all_is_an_error() {
    // A listener that never answers, and a port that nobody listens on.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!(
        "postgres://u@127.0.0.1:{},127.0.0.1:{closed}/db?connect_timeout=1&sslmode=disable",
        silent.local_addr().unwrap().port()
    );
    let refused = parse(&url).connect().await.unwrap_err();
    assert!(matches!(&refused, sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut), "{refused}");
    let refused = parse(&format!("postgres://u@127.0.0.1:{closed},127.0.0.1:{closed}/db")).connect().await.unwrap_err();
    assert!(matches!(&refused, sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused), "{refused}");
}
