//! The file of suppliers.

use std::os::unix::fs::PermissionsExt;

use rewards_ledger::fulfilment::supply::{self, Notices};

use crate::support::program::write_private;
use crate::support::supplier::{CLIENT_SECRET, NOTICE_SECRET};

#[test]
fn a_file_of_suppliers_with_a_fault_is_refused_without_its_secrets() {
    let directory = tempfile::tempdir().unwrap();
    write_private(&directory.path().join("secret"), CLIENT_SECRET);
    let good = "[[supplier]]\nname = \"acme\"\norder_url = \"https://supplier.example/orders\"\n\
        status_url = \"https://supplier.example/orders/{key}\"\ntoken_url = \"https://supplier.example/token\"\n\
        client_id = \"ledger\"\nclient_secret_file = \"secret\"\n";
    let read = |text: &str| {
        let path = directory.path().join("suppliers.toml");
        std::fs::write(&path, text).unwrap();
        supply::read(&path)
    };
    let notices = |text: &str| {
        let path = directory.path().join("suppliers.toml");
        std::fs::write(&path, text).unwrap();
        Notices::read(&path)
    };
    let open = directory.path().join("open");
    std::fs::write(&open, "hidden-0123456789").unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
    let settings = read(good).unwrap();
    assert!(!format!("{settings:?}").contains(CLIENT_SECRET));
    for (from, to, fault) in [
        ("https://supplier.example/token", "http://supplier.example/token", "token_url"),
        ("https://supplier.example/token", "https://10.0.0.1/token", "token_url"),
        ("https://supplier.example/token", "https://user:hidden@supplier.example/", "token_url"),
        ("{key}", "key", "status_url"),
        ("\"secret\"", "\"nowhere\"", "client_secret_file"),
        ("\"secret\"", "\"open\"", "chmod 600 "),
        ("\"acme\"", "\"A C M E\"", "name"),
        ("client_id", "client", "client"),
        ("[[supplier]]\n", "[[supplier]]\ncalls_per_minute = 0\n", "calls_per_minute"),
        ("[[supplier]]\n", "[[supplier]]\nrefusal_statuses = [401]\n", "refusal_statuses"),
        ("[[supplier]]\n", "[[supplier]]\nfields = { pin = \"pin\" }\n", "JSON pointers"),
    ] {
        let problem = read(&good.replace(from, to)).unwrap_err().to_string();
        assert!(problem.contains(fault) && !problem.contains("hidden"), "{problem}");
    }
    write_private(&directory.path().join("notices"), NOTICE_SECRET);
    write_private(&directory.path().join("short"), "0123456789abcde");
    let sends = format!("{good}notice_secret_file = \"notices\"\n");
    let settings = notices(&sends).unwrap();
    assert!(settings.of("acme").is_some() && settings.of("other").is_none() && !format!("{settings:?}").contains(NOTICE_SECRET));
    assert!(notices(good).unwrap().of("acme").is_none());
    for (from, to, fault) in [
        ("\"notices\"", "\"nowhere\"", "nowhere cannot be read"),
        ("\"notices\"", "\"open\"", "chmod 600 "),
        ("\"notices\"", "\"short\"", "notice_secret_file must have a secret of 16 characters or more"),
        ("\"notices\"", "\"secret\"", "notice_secret_file must be another file"),
        ("notice_secret_file = \"notices\"", "[supplier.notice]", "notice needs notice_secret_file"),
        ("\"notices\"\n", "\"notices\"\n[supplier.notice]\nsignature_header = \"a b\"\n", "signature_header"),
        ("\"notices\"\n", "\"notices\"\n[supplier.notice]\nkey = \"id\"\n", "notice.key must be a JSON pointer"),
        ("\"notices\"\n", "\"notices\"\n[supplier.notice]\nsecret = \"id\"\n", "unknown field"),
    ] {
        let problem = notices(&sends.replace(from, to)).unwrap_err().to_string();
        assert!(problem.contains(fault) && !problem.contains("0123456789"), "{problem}");
    }
    assert!(read(&format!("{good}{good}")).unwrap_err().to_string().contains("twice"));
}
