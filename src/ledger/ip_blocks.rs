//! Rows of IP blocks, as a command that lifts one locks and ends them.

use std::collections::HashMap;
use std::net::IpAddr;

use ledger_database::PgConnection;

/// Returns the ids of the active blocks of these IPs, and locks the rows until the transaction ends.
pub async fn lock(conn: &mut PgConnection, ips: &[IpAddr]) -> Result<HashMap<IpAddr, i64>, sqlx::Error> {
    let found: Vec<(String, i64)> = sqlx::query_as(
        "SELECT ip, id FROM ip_blocks WHERE ip = ANY($1) AND clock_timestamp() BETWEEN started_at AND ends_at ORDER BY ip FOR UPDATE",
    )
    .bind(ips.iter().map(IpAddr::to_string).collect::<Vec<_>>())
    .fetch_all(conn)
    .await?;
    Ok(found.into_iter().filter_map(|(ip, id)| Some((ip.parse().ok()?, id))).collect())
}

/// Ends the blocks of these IPs.
pub async fn end(conn: &mut PgConnection, ips: &[IpAddr]) -> Result<(), sqlx::Error> {
    if !ips.is_empty() {
        let ips: Vec<String> = ips.iter().map(IpAddr::to_string).collect();
        sqlx::query("DELETE FROM ip_blocks WHERE ip = ANY($1)").bind(ips).execute(conn).await?;
    }
    Ok(())
}
