//! Every operation that reads JSON reads it strictly.

use serde_json::json;

use super::fuzz::stage;

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_is_unknown_or_given_twice_is_refused_everywhere_and_did_nothing() {
    let (node, world, operations) = stage().await;
    let head = node.head().await;
    let mut walked = 0;
    for operation in operations.iter().filter(|operation| operation.is_json()) {
        let said = format!("{} {}", operation.method, operation.path);
        let fields = operation.body.as_object().unwrap_or_else(|| panic!("{said} has no example"));
        let (name, value) = fields.iter().next().unwrap_or_else(|| panic!("the example of {said} has no fields"));
        for (name, value) in [("surplus", &json!(1)), (name, value)] {
            let rest = &operation.body.to_string()[1..];
            let body = format!("{{{}:{value},{rest}", json!(name));
            let answer = node.send(operation.request(&node, &world).body(body)).await;
            assert_eq!(answer.status, 400, "{said} took {name}: {}", answer.text);
            let error = answer.refused(400, "E_VALIDATION_FAILURE");
            assert!(error["messages"][name].is_array(), "{said}: {error}");
        }
        walked += 1;
    }
    assert!(walked > 25, "{walked}");
    assert_eq!(node.head().await, head);
}
