//! Properties of all histories of an account, and of a credential.

use std::collections::BTreeMap;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::restrictions::Scope;
use crate::{AccountId, CategoryId, CredentialId, Money, ProductId, WalletId};

fn at(version: i64) -> Moment {
    let recorded_at = DateTime::from_timestamp(1_800_000_000 + version, 0).unwrap();
    Moment { position: 100 + version, event_id: Uuid::nil(), version, recorded_at }
}

fn percent(cents: i64) -> Percent {
    Money::from_cents(cents).unwrap().try_into().unwrap()
}

fn erased() -> PersonalDataErased {
    PersonalDataErased { texts: 1, vouchers: 0, answers: 0, data_keys: 1, is_complete: true, line: None, reason_hash: "h".into() }
}

fn account_event() -> impl Strategy<Value = AccountEvent> {
    let target = prop_oneof![
        (1i64..4).prop_map(|product| (Some(product), None)),
        (1i64..4).prop_map(|category| (None, Some(category))),
        Just((None, None)),
    ];
    let discount = (target, 0i64..10_000).prop_map(|((product_id, category_id), cents)| {
        AccountEvent::from(DiscountSet {
            product_id: product_id.map(ProductId),
            category_id: category_id.map(CategoryId),
            discount: percent(cents),
        })
    });
    let status = any::<bool>().prop_map(|is_active| {
        AccountStatusChanged { status: if is_active { AccountStatus::Active } else { AccountStatus::Suspended } }.into()
    });
    let money = |cents| Money::from_cents(cents).unwrap();
    let notice = (1i64..4).prop_map(move |wallet_id| {
        let currency = "EUR".parse().unwrap();
        LowBalanceNoticeSet { wallet_id: WalletId(wallet_id), currency, below: Some(money(100)), balance: money(500) }.into()
    });
    prop_oneof![6 => discount, 2 => status, 1 => Just(erased().into()), 1 => notice]
}

fn credential_event() -> impl Strategy<Value = CredentialEvent> {
    prop_oneof![
        Just(SigningSecretRotated::default().into()),
        any::<bool>().prop_map(|is_required| HmacRequirementChanged { is_required }.into()),
        Just(CredentialRevoked {}.into()),
    ]
}

proptest! {
    /// The effective discount is the last one set on the most specific target that has one.
    #[test]
    fn an_account_reflects_the_last_event_of_each_kind(steps in prop::collection::vec(account_event(), 0..30)) {
        let mut state = evolve(None, AccountId(7), &AccountCreated { name: "Acme".into() }.into(), &at(1)).unwrap();
        let (mut status, mut set) = (AccountStatus::Active, BTreeMap::new());
        for (event, version) in steps.iter().zip(2..) {
            match event {
                AccountEvent::AccountStatusChanged(e) => status = e.status,
                AccountEvent::DiscountSet(e) => _ = set.insert((e.product_id, e.category_id), e.discount),
                AccountEvent::AccountCreated(_)
                | AccountEvent::LowBalanceNoticeSet(_)
                | AccountEvent::LowBalanceReached(_)
                | AccountEvent::UserInvited(_)
                | AccountEvent::InvitationRevoked(_)
                | AccountEvent::SecurityPolicyChanged(_)
                | AccountEvent::PersonalDataErased(_) => {}
            }
            state = evolve(Some(state), AccountId(7), event, &at(version)).unwrap();
        }
        let last = 1 + steps.len() as i64;
        prop_assert_eq!((state.id, state.version, &*state.name, state.status), (AccountId(7), last, "Acme", status));
        prop_assert_eq!((state.created_at, state.updated_at), (at(1).recorded_at, at(last).recorded_at));
        prop_assert_eq!(state.discounts.len(), set.len(), "one discount per target");
        for product in 0..5 {
            let product = ProductId(product);
            for category in [None, Some(1), Some(2), Some(9)] {
                let category = category.map(CategoryId);
                let targets = [Some((Some(product), None)), category.map(|category| (None, Some(category))), Some((None, None))];
                let expected = targets.into_iter().flatten().find_map(|target| set.get(&target).copied());
                let expected = expected.unwrap_or(Percent::ZERO);
                prop_assert_eq!(state.discount_on(product, category), expected);
                prop_assert_eq!(state.discounts().on(product, category), expected);
            }
        }
    }

    #[test]
    fn a_credential_reflects_the_last_event_of_each_kind(steps in prop::collection::vec(credential_event(), 0..12)) {
        let restrictions = Restrictions { scopes: Some([Scope::Read].into_iter().collect()), ..Restrictions::default() };
        let issued = CredentialIssued {
            account_id: AccountId(7),
            name: "key".into(),
            key_prefix: "abcdefgh".into(),
            restrictions: restrictions.clone(),
            row_mac: None,
        };
        let mut state = evolve_credential(None, CredentialId(3), &issued.into(), &at(1)).unwrap();
        for (event, version) in steps.iter().zip(2..) {
            state = evolve_credential(Some(state), CredentialId(3), event, &at(version)).unwrap();
        }
        let last = 1 + steps.len() as i64;
        let required = steps.iter().rev().find_map(|event| match event {
            CredentialEvent::HmacRequirementChanged(e) => Some(e.is_required),
            _ => None,
        });
        let expected = Credential {
            id: CredentialId(3),
            version: last,
            account_id: AccountId(7),
            name: "key".into(),
            key_prefix: "abcdefgh".into(),
            restrictions,
            has_signing_secret: steps.contains(&SigningSecretRotated::default().into()),
            hmac_required: required.unwrap_or(false),
            is_revoked: steps.contains(&CredentialRevoked {}.into()),
            created_at: at(1).recorded_at,
            updated_at: at(last).recorded_at,
        };
        prop_assert_eq!(state, expected);
    }

    /// Only the creating event starts a stream.
    #[test]
    fn a_stream_without_its_first_event_has_no_state(account in account_event(), credential in credential_event()) {
        prop_assert_eq!(evolve(None, AccountId(7), &account, &at(1)), None);
        prop_assert_eq!(evolve_credential(None, CredentialId(3), &credential, &at(1)), None);
    }
}
