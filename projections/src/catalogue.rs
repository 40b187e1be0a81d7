//! `products` and `categories`, written inline.

use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use ledger_database::{PgConnection, PgPool};
use ledger_events::catalogue::{Category, CategoryEvent, Product, ProductEvent, evolve, evolve_category};
use ledger_events::{CategoryId, ProductId, ShardId};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{Postgres, QueryBuilder, Row as _};

use crate::ProjectionError;
use crate::page::{self, Listed, Page};
use crate::state::{Row, State, Upsert, all, first, select, state};

impl<Text: DeserializeOwned + Send + Unpin> Row for Product<Text> {
    const COLUMNS: &'static str = "id, version, details, image, created_at, updated_at";

    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Product {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            details: row.try_get::<Json<_>, _>("details")?.0,
            image: row.try_get::<Option<Json<_>>, _>("image")?.map(|image| image.0),
            created_at: row.try_get("created_at")?,
            updated_at: row.try_get("updated_at")?,
        })
    }
}

impl State for Product {
    // The rows are those of the first shard. In the others, a product's stream has only what happened to their stock, and no
    // state follows from that.
    state!(ProductId, ProductEvent, Product, evolve, "products");
}

impl Upsert for Product {
    async fn write(conn: &mut PgConnection, shard: ShardId, products: &[&Self]) -> Result<(), ProjectionError> {
        if products.is_empty() {
            return Ok(());
        }
        sqlx::query(
            "INSERT INTO products (shard_id, id, version, name, category_id, country, currency, is_active, details, image, created_at, updated_at)
             SELECT $1, new.* FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::boolean[], $9::json[],
                $10::json[], $11::timestamptz[], $12::timestamptz[]) AS new
             ON CONFLICT (id) DO UPDATE SET version = excluded.version, name = excluded.name, category_id = excluded.category_id,
                country = excluded.country, currency = excluded.currency, is_active = excluded.is_active, details = excluded.details,
                image = excluded.image, updated_at = excluded.updated_at",
        )
        .bind(shard)
        .bind(products.iter().map(|p| p.id).collect::<Vec<_>>())
        .bind(products.iter().map(|p| p.version).collect::<Vec<_>>())
        .bind(products.iter().map(|p| &*p.details.name).collect::<Vec<_>>())
        .bind(products.iter().map(|p| p.details.category_id).collect::<Vec<_>>())
        .bind(products.iter().map(|p| &*p.details.country).collect::<Vec<_>>())
        .bind(products.iter().map(|p| p.details.currency.as_str()).collect::<Vec<_>>())
        .bind(products.iter().map(|p| p.details.is_active).collect::<Vec<_>>())
        .bind(products.iter().map(|p| serde_json::to_string(&p.details)).collect::<Result<Vec<_>, _>>()?)
        .bind(products.iter().map(|p| p.image.as_ref().map(serde_json::to_string).transpose()).collect::<Result<Vec<_>, _>>()?)
        .bind(products.iter().map(|p| p.created_at).collect::<Vec<_>>())
        .bind(products.iter().map(|p| p.updated_at).collect::<Vec<_>>())
        .execute(conn)
        .await?;
        Ok(())
    }
}

impl Row for Category {
    const COLUMNS: &'static str = "id, version, name, parent_id, created_at";

    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Category {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            name: row.try_get("name")?,
            parent_id: row.try_get("parent_id")?,
            created_at: row.try_get("created_at")?,
        })
    }
}

impl State for Category {
    state!(CategoryId, CategoryEvent, Category, evolve_category, "categories");

    /// Loads categories by id, which all shards share like products.
    async fn load(conn: &mut PgConnection, _: ShardId, ids: &[CategoryId]) -> Result<Vec<Self>, sqlx::Error> {
        all(select("FROM categories WHERE id = ANY($1)").bind(ids), conn).await
    }
}

impl Upsert for Category {
    async fn write(conn: &mut PgConnection, shard: ShardId, categories: &[&Self]) -> Result<(), ProjectionError> {
        for category in categories {
            sqlx::query(
                "INSERT INTO categories (shard_id, id, version, name, parent_id, created_at) VALUES ($1, $2, $3, $4, $5, $6)
                 ON CONFLICT (id) DO UPDATE SET version = excluded.version, name = excluded.name, parent_id = excluded.parent_id",
            )
            .bind(shard)
            .bind(category.id)
            .bind(category.version)
            .bind(&*category.name)
            .bind(category.parent_id)
            .bind(category.created_at)
            .execute(&mut *conn)
            .await?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug, Default)]
pub struct ProductFilter {
    /// Only these products.
    pub ids: Option<Vec<ProductId>>,
    pub is_active: Option<bool>,
    pub category_id: Option<CategoryId>,
    pub country: Option<String>,
    pub currency: Option<String>,
    /// Part of the name or brand, case-insensitive.
    pub search: Option<String>,
    pub updated_since: Option<DateTime<Utc>>,
    /// Whether to skip products without an image.
    pub with_image: bool,
}

/// Brands that match a pattern, as an array. Takes one step of an index for each brand of the catalogue, because parsing
/// the JSON of every product takes longer than all the rest of a search (measured with 10,000 products: 40 ms of 50).
const BRANDS_LIKE: &str = r#"ARRAY(
    WITH RECURSIVE brands AS (
        (SELECT (details->>'brand') COLLATE "C" AS brand FROM products ORDER BY 1 LIMIT 1)
        UNION ALL
        SELECT (SELECT (details->>'brand') COLLATE "C" FROM products WHERE (details->>'brand') COLLATE "C" > brands.brand
            ORDER BY 1 LIMIT 1)
        FROM brands WHERE brands.brand IS NOT NULL)
    SELECT brand FROM brands WHERE brand ~ "#;

/// Returns a regular expression for texts that contain a part in any case. It names both cases of every letter: `ILIKE` knows
/// only those of the collation, and a database with the locale C knows no umlaut.
fn containing(part: &str) -> String {
    let mut pattern = String::with_capacity(part.len() * 4);
    for char in part.chars() {
        let mut cases = vec![char];
        // A letter whose other case is several letters has only its own.
        for other in [single(char.to_lowercase()), single(char.to_uppercase())].into_iter().flatten() {
            if !cases.contains(&other) {
                cases.push(other);
            }
        }
        match cases[..] {
            [only] if only.is_ascii_punctuation() => pattern.extend(['\\', only]),
            [only] => pattern.push(only),
            _ => {
                pattern.push('[');
                pattern.extend(cases);
                pattern.push(']');
            }
        }
    }
    pattern
}

/// Returns the only character, or none if there are several.
fn single(mut chars: impl Iterator<Item = char>) -> Option<char> {
    let first = chars.next();
    first.filter(|_| chars.next().is_none())
}

impl ProductFilter {
    /// Writes a query for the ids of the products.
    fn write(&self, query: &mut QueryBuilder<Postgres>) {
        self.write_conditions(query);
        if let Some(search) = &self.search {
            let pattern = containing(search);
            query.push(" AND name COLLATE \"C\" ~ ").push_bind(pattern.clone());
            query.push(" UNION ");
            self.write_conditions(query);
            query.push(" AND (details->>'brand') COLLATE \"C\" = ANY (").push(BRANDS_LIKE).push_bind(pattern).push("))");
        }
    }

    /// Writes a query for the ids with every condition but the search.
    fn write_conditions(&self, query: &mut QueryBuilder<Postgres>) {
        query.push("SELECT id FROM products WHERE true");
        if let Some(ids) = &self.ids {
            query.push(" AND id = ANY(").push_bind(ids.clone()).push(")");
        }
        page::equals(query, "is_active", self.is_active);
        page::equals(query, "category_id", self.category_id);
        page::equals(query, "country", self.country.clone());
        page::equals(query, "currency", self.currency.clone());
        page::between(query, "updated_at", self.updated_since, None);
        if self.with_image {
            query.push(" AND image IS NOT NULL");
        }
    }
}

/// Lists one page of products, newest first, with the total. Uses one statement, because a page can contain the
/// whole catalogue. Finds the products once for both. The long texts stay the JSON that the table stores.
pub async fn list(pool: &PgPool, filter: &ProductFilter, page: Page) -> Result<Listed<Product<Box<RawValue>>>, sqlx::Error> {
    let mut query = QueryBuilder::new("WITH found (found_id) AS MATERIALIZED (");
    filter.write(&mut query);
    query.push(") SELECT (SELECT count(*) FROM found) AS total, ").push(Product::<String>::COLUMNS);
    query.push(" FROM (SELECT found_id FROM found ORDER BY found_id DESC LIMIT ").push_bind(page.size);
    query.push(" OFFSET ").push_bind((page.number - 1).saturating_mul(page.size));
    query.push(") AS listed JOIN products ON id = found_id ORDER BY id DESC");
    // Parse each row while the database sends the next ones.
    let (mut rows, mut total) = (vec![], None);
    let mut found = query.build().fetch(pool);
    while let Some(row) = found.try_next().await? {
        if total.is_none() {
            total = Some(row.try_get("total")?);
        }
        rows.push(Product::read(&row)?);
    }
    let total = match total {
        Some(total) => total,
        None if page.number == 1 => 0,
        // A page past the end has no row that carries the total.
        None => {
            let mut count = QueryBuilder::new("SELECT count(*) FROM (");
            filter.write(&mut count);
            count.push(") AS found");
            count.build_query_scalar().fetch_one(pool).await?
        }
    };
    Ok(Listed { rows, total })
}

pub async fn find(pool: &PgPool, id: ProductId) -> Result<Option<Product>, sqlx::Error> {
    let query = select("FROM products WHERE id = $1").bind(id);
    first(query, pool).await
}

/// Lists all categories, ordered by name.
pub async fn categories(pool: &PgPool) -> Result<Vec<Category>, sqlx::Error> {
    all(select("FROM categories ORDER BY name, id"), pool).await
}

/// Lists one page of categories, newest first.
pub async fn list_categories(pool: &PgPool, page: Page) -> Result<Listed<Category>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM categories WHERE true");
    };
    page::fetch(pool, conditions, "id", page).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_names_both_cases_of_every_letter() {
        assert_eq!(containing("aÄ-1"), "[aA][Ää]\\-1");
        assert_eq!(containing(r"50% [x]\"), r"50\% \[[xX]\]\\");
        assert_eq!(containing("ß 日"), "ß 日", "the other case of ß is two letters, and some scripts have no cases");
    }
}
