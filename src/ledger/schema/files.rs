//! The files in `migrations/`, built into the program.

use std::sync::LazyLock;

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// The migrations in `migrations/`, in order. `sqlx::migrate!` would do the same, but it builds sqlx, tokio and rustls a
/// second time, for the host.
pub(super) static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| Migrator::with_migrations(FILES.map(parse).into()));

macro_rules! migrations {
    ($($name:literal)*) => { [$(($name, include_str!(concat!("../../../migrations/", $name, ".sql")))),*] };
}

/// Names and contents of the files in `migrations/`.
const FILES: [(&str, &str); 62] = migrations![
    "0001_ledger"
    "0002_sessions"
    "0003_limits"
    "0004_catalogue"
    "0005_payouts"
    "0006_recovery"
    "0007_delivery"
    "0008_rows"
    "0009_lists"
    "0010_transparency"
    "0011_reconciliation"
    "0012_erasure"
    "0013_statement_lines"
    "0014_lists_by_status"
    "0015_keys_without_ages"
    "0016_orders_by_marks"
    "0017_orders_by_status"
    "0019_trusted_clock"
    "0021_refusals"
    "0023_login_sources"
    "0025_master_keys"
    "0026_row_macs"
    "0027_user_security"
    "0029_operator_users"
    "0030_approvals"
    "0031_keys_and_notices"
    "0032_events_by_account"
    "0033_events_by_request"
    "0034_accounts_by_name"
    "0035_voided_vouchers"
    "0036_delivery_days"
    "0039_withdrawn_approvals"
    "0040_products_with_thresholds"
    "0041_products_by_brand"
    "0042_nodes_and_audit_runs"
    "0043_product_thumbnails"
    "0044_failed_deliveries_by_time"
    "0045_orders_by_client_reference"
    "0046_payouts_by_client_reference"
    "0047_refusals_of_every_origin"
    "0048_events_by_type"
    "0049_events_by_actor"
    "0050_further_webhook_events"
    "0051_further_events_by_account"
    "0052_transactions_except_orders"
    "0053_deactivated_webhooks"
    "0054_claimed_attempts"
    "0055_attempts_by_time"
    "0056_webhook_of_attempt"
    "0057_attempts_of_webhook"
    "0058_rare_transactions"
    "0059_stock_ledger"
    "0060_expiring_vouchers"
    "0061_purchases"
    "0062_noticed_purchases"
    "0063_open_purchases_by_key"
    "0064_stock_transfers"
    "0065_response_of_attempt"
    "0066_bodies_of_attempts"
    "0067_shard_leaders"
    "0068_shards"
    "0069_accounts_by_time"
];

/// Parses a migration as `sqlx::migrate!` does. Version and description are in the file's name; a first line
/// `-- no-transaction` means that it runs outside a transaction.
fn parse((name, sql): (&'static str, &'static str)) -> Migration {
    let (version, description) = name.split_once('_').unwrap_or((name, ""));
    // A test holds every name to this form.
    let version = version.parse().unwrap_or_default();
    let is_without_transaction = sql.starts_with("-- no-transaction");
    Migration::new(
        version,
        description.replace('_', " ").into(),
        MigrationType::Simple,
        sql.into_sql_str(),
        is_without_transaction,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_in_migrations_is_built_in_under_its_version() {
        let directory = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations")).unwrap();
        let mut files: Vec<_> = directory.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        files.sort();
        assert_eq!(files, FILES.map(|(name, _)| format!("{name}.sql")));
        for ((name, sql), migration) in FILES.iter().zip(MIGRATIONS.iter()) {
            assert_eq!(format!("{:04}_{}", migration.version, migration.description.replace(' ', "_")), *name);
            assert_eq!(migration.sql.as_str(), *sql);
        }
    }
}
