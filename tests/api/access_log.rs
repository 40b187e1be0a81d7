//! The access log has one line per request.

use serde_json::{Value, json};

use crate::support::lines::Logged;
use crate::support::node::{Client, Node};

// A single thread, so that everything it logs belongs to this test.
#[tokio::test]
async fn a_line_says_who_called_and_shows_no_secret() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let user = node.user(client.account_id, "owner").await;
    let wrong = Client { secret: "0".repeat(64), ..client.clone() };
    let logged = Logged::begin("off,access=info");
    let secrets = [&client.secret, &wrong.secret, &user.access_token, &user.cookie];

    let fields = || {
        let (lines, text) = logged.take();
        assert!(!text.contains(&client.key[..9]), "more of the key is shown than allowed: {text}");
        assert!(secrets.iter().all(|secret| !text.contains(secret.as_str())), "{text}");
        assert_eq!(lines.len(), 1, "{text}");
        let line = &lines[0];
        (line["fields"]["status"].clone(), line["fields"]["caller"].clone(), line["fields"]["api_key"].clone())
    };
    let prefix = json!(client.key[..8]);
    let credential = json!(format!("credential {}", client.credential_id));
    let name = json!(format!("user {}", user.id));

    node.client(&client, "GET", "/orders", Value::Null).await.data(200);
    assert_eq!(fields(), (json!(200), credential.clone(), prefix.clone()));
    node.client(&client, "POST", "/orders", json!({})).await.refused(400, "E_VALIDATION_FAILURE");
    assert_eq!(fields(), (json!(400), credential, prefix.clone()), "a refused request names its caller as well");
    node.client(&wrong, "GET", "/orders", Value::Null).await.refused(401, "E_UNAUTHORIZED");
    assert_eq!(fields(), (json!(401), Value::Null, prefix), "with a wrong secret only the key's prefix is logged");
    node.bearer(&user.access_token, "GET", "/api/v1/orders", Value::Null).await.data(200);
    assert_eq!(fields(), (json!(200), name.clone(), Value::Null));
    node.portal(&user.cookie, node.url(), "GET", "/client/api/api-keys", Value::Null).await.data(200);
    assert_eq!(fields(), (json!(200), name, Value::Null));
    node.operator("GET", "/accounts", Value::Null).await.data(200);
    assert_eq!(fields(), (json!(200), json!("operator 0"), Value::Null), "the operator whose token is in the configuration");
    for path in ["/api/v1/orders", "/healthz"] {
        let answer = node.send(node.request("GET", path)).await;
        assert_eq!(fields(), (json!(answer.status), Value::Null, Value::Null), "{path}");
    }
}
