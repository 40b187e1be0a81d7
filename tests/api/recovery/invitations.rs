//! Invitations of users, and the owner that an account always keeps.

use serde_json::{Value, json};

use super::{INVITATIONS, USERS, accept, ask, execute, log_in, with_user};
use crate::api::at_rest::readable_in;
use crate::support::mail::SmtpServer;
use crate::support::node::{PASSWORD, TestResponse, User};

#[tokio::test]
async fn an_owner_invites_a_user_who_chooses_a_password() {
    let (node, owner) = with_user("owner").await;
    let server = SmtpServer::start().await;
    let head = node.head().await;
    let invited =
        ask(&node, &owner, "POST", INVITATIONS, json!({"email": "Grace@example.com", "role": "operator"})).await.data(201);
    assert_eq!(
        (&invited["email"], &invited["role"], &invited["invited_by"]),
        (&json!("Grace@example.com"), &json!("operator"), &json!(owner.id))
    );
    assert_eq!(ask(&node, &owner, "GET", INVITATIONS, Value::Null).await.data(200)["invitations"], json!([invited]));
    assert_eq!(readable_in(&node, "Grace@example.com").await, Vec::<String>::new());
    let mails = server.deliver(&node).await;
    assert_eq!((mails.len(), mails[0].to.as_str()), (1, "Grace@example.com"));
    assert!(mails[0].subject().starts_with("Invitation to Acme at "), "{mails:?}");
    let token = mails[0].token();

    let weak = json!({"token": token, "password": "password1"});
    node.anyone("POST", "/auth/invitations/accept", weak).await.refused(400, "E_VALIDATION_FAILURE");
    let answers = futures::future::join_all((0..4).map(|_| accept(&node, &token))).await;
    let (good, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 201);
    assert_eq!(good.len(), 1);
    refused.iter().for_each(|answer| _ = answer.refused(401, "E_INVALID_TOKEN"));
    let grace = good[0].data(201);
    assert_eq!(
        (&grace["email"], &grace["role"], &grace["account_id"]),
        (&json!("Grace@example.com"), &json!("operator"), &json!(owner.account_id))
    );
    log_in(&node, "grace@example.com", PASSWORD).await.data(200);
    assert_eq!(ask(&node, &owner, "GET", INVITATIONS, Value::Null).await.data(200)["invitations"], json!([]));

    // A second invitation to an address that has a login is refused only to the person who gets it.
    ask(&node, &owner, "POST", INVITATIONS, json!({"email": "grace@example.com", "role": "viewer"})).await.data(201);
    let token = server.deliver(&node).await[0].token();
    accept(&node, &token).await.refused(409, "E_CONFLICT");
    // A refused acceptance does not use up the invitation.
    accept(&node, &token).await.refused(409, "E_CONFLICT");
    let events: Vec<(String, Value)> =
        sqlx::query_as("SELECT type, metadata->'actor' FROM events WHERE position > $1 ORDER BY position")
            .bind(head)
            .fetch_all(node.ledger.pool())
            .await
            .unwrap();
    let by_owner = |name: &str| (name.to_owned(), json!({"user": owner.id}));
    assert_eq!(events, ["UserInvited", "UserCreated", "UserInvited"].map(by_owner));
}

#[tokio::test]
async fn an_address_has_one_open_invitation_of_an_account() {
    let (node, owner) = with_user("owner").await;
    let other = node.account("Other").await;
    let other = node.user(other.account_id, "owner").await;
    let server = SmtpServer::start().await;
    let invite = async |user: &User, email: &str, key: &str| {
        let request = node.request("POST", INVITATIONS).bearer_auth(&user.access_token).header("Idempotency-Key", key);
        node.send(request.json(&json!({"email": email, "role": "viewer"}))).await
    };
    let open = async || ask(&node, &owner, "GET", INVITATIONS, Value::Null).await.data(200)["invitations"].take();
    let head = node.head().await;
    let first = invite(&owner, "grace@example.com", "a").await.data(201);
    let (again, stranger) = (invite(&owner, "grace@example.com", "a").await, invite(&other, "grace@example.com", "a").await);
    assert_eq!((again.data(201), again.header("idempotent-replayed")), (first.clone(), "true"));
    stranger.data(201);
    let mails = server.deliver(&node).await;
    assert_eq!(mails.len(), 2, "one of each account");

    // Another invitation replaces the open one, whatever the case of the address.
    let (second, third) = tokio::join!(invite(&owner, "Grace@Example.com", "b"), invite(&owner, "GRACE@example.com", "c"));
    let (second, third) = (second.data(201), third.data(201));
    let left = open().await;
    assert!(left == json!([second]) || left == json!([third]), "{left}");
    invite(&owner, "grace@example.com", "a").await.refused(409, "E_ALREADY_CREATED");
    let last = server.deliver(&node).await;
    for mail in mails.iter().filter(|mail| mail.subject().starts_with("Invitation to Acme at ")) {
        accept(&node, &mail.token()).await.refused(401, "E_INVALID_TOKEN");
    }
    assert_eq!(last.len(), 1, "the mail of a replaced invitation is not sent");
    accept(&node, &last[0].token()).await.data(201);
    let events: Vec<String> = sqlx::query_scalar("SELECT type FROM events WHERE position > $1 ORDER BY position")
        .bind(head)
        .fetch_all(node.ledger.pool())
        .await
        .unwrap();
    let replaced = ["InvitationRevoked", "UserInvited"];
    assert_eq!(events, [&["UserInvited"; 2][..], &replaced, &replaced, &["UserCreated"]].concat());
}

#[tokio::test]
async fn an_account_has_at_most_a_hundred_open_invitations() {
    let (node, owner) = with_user("owner").await;
    let invite = |number: i32| {
        let body = json!({"email": format!("user-{number}@example.com"), "role": "viewer"});
        ask(&node, &owner, "POST", INVITATIONS, body)
    };
    let answers = futures::future::join_all((0..105).map(invite)).await;
    let refused: Vec<&TestResponse> = answers.iter().filter(|answer| answer.status != 201).collect();
    assert_eq!(refused.len(), 5);
    refused.iter().for_each(|answer| _ = answer.refused(409, "E_CONFLICT"));
    let open = ask(&node, &owner, "GET", INVITATIONS, Value::Null).await.data(200)["invitations"].take();
    assert_eq!(open.as_array().unwrap().len(), 100);
    // An address that is invited already takes no further place.
    let known = open[0]["email"].as_str().unwrap();
    ask(&node, &owner, "POST", INVITATIONS, json!({"email": known, "role": "owner"})).await.data(201);
}

#[tokio::test]
async fn an_invitation_ends_when_it_is_revoked_or_its_owner_is_no_longer_one() {
    let (node, owner) = with_user("owner").await;
    let second = node.user(owner.account_id, "owner").await;
    let stranger = node.account("Other").await;
    let stranger = node.user(stranger.account_id, "owner").await;
    let server = SmtpServer::start().await;
    let invite = async |user: &User, email: &str| {
        let id = ask(&node, user, "POST", INVITATIONS, json!({"email": email, "role": "owner"})).await.data(201)["id"].clone();
        (format!("{INVITATIONS}/{id}"), server.deliver(&node).await[0].token())
    };
    let (path, token) = invite(&owner, "a@example.com").await;
    ask(&node, &stranger, "DELETE", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    ask(&node, &second, "DELETE", &path, Value::Null).await.data(200);
    ask(&node, &second, "DELETE", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    accept(&node, &token).await.refused(401, "E_INVALID_TOKEN");

    let (_, token) = invite(&second, "b@example.com").await;
    ask(&node, &owner, "PUT", &format!("{USERS}/{}", second.id), json!({"role": "viewer"})).await.data(200);
    accept(&node, &token).await.refused(409, "E_CONFLICT");
    let (_, token) = invite(&owner, "c@example.com").await;
    let third = node.user(owner.account_id, "owner").await;
    ask(&node, &third, "DELETE", &format!("{USERS}/{}", owner.id), Value::Null).await.data(200);
    accept(&node, &token).await.refused(401, "E_INVALID_TOKEN");
    // An invitation that somebody has changed admits nobody.
    let (_, token) = invite(&third, "d@example.com").await;
    execute(&node, "UPDATE vault.invitations SET expires_at = expires_at + interval '1 h'").await;
    accept(&node, &token).await.refused(401, "E_INVALID_TOKEN");
}

#[tokio::test]
async fn an_account_always_keeps_an_owner() {
    let (node, owner) = with_user("owner").await;
    let viewer = node.user(owner.account_id, "viewer").await;
    let path = |user: &User| format!("{USERS}/{}", user.id);
    ask(&node, &owner, "PUT", &path(&owner), json!({"role": "operator"})).await.refused(409, "E_CONFLICT");
    ask(&node, &owner, "DELETE", &path(&owner), Value::Null).await.refused(409, "E_CONFLICT");
    ask(&node, &viewer, "PUT", &path(&viewer), json!({"role": "owner"})).await.refused(403, "E_FORBIDDEN");
    let raised = ask(&node, &owner, "PUT", &path(&viewer), json!({"role": "owner"})).await.data(200);
    assert_eq!((&raised["role"], &raised["has_two_factor"]), (&json!("owner"), &json!(false)));
    ask(&node, &viewer, "GET", USERS, Value::Null).await.refused(401, "E_INVALID_TOKEN");
    let viewer = node.again(&viewer).await;
    // If two owners remove each other at the same time, one stays.
    let (to_owner, to_viewer) = (path(&owner), path(&viewer));
    let answers = tokio::join!(
        ask(&node, &owner, "DELETE", &to_viewer, Value::Null),
        ask(&node, &viewer, "DELETE", &to_owner, Value::Null)
    );
    let statuses = [answers.0.status, answers.1.status];
    assert!(statuses.contains(&200) && statuses != [200, 200], "{statuses:?}");
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM users WHERE role = 'owner' AND NOT is_removed")
        .fetch_one(node.ledger.pool())
        .await
        .unwrap();
    assert_eq!(left, 1);
}
