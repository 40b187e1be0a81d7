//! `products` and `categories`, written inline.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use ledger_database::FromRow;
use ledger_database::{PgConnection, PgPool};
use ledger_events::catalogue::{Category, Product, evolve, evolve_category};
use ledger_events::{CategoryId, Event, ProductId, Recorded, ShardId};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{Postgres, QueryBuilder, Row};

use crate::ProjectionError;
use crate::page::{self, Listed, Page};

/// The columns of [`ProductRow`], as a literal for `concat!`.
macro_rules! product_columns {
    () => {
        "id, version, details, image, created_at, updated_at"
    };
}

/// The columns of [`CategoryRow`], as a literal for `concat!`.
macro_rules! category_columns {
    () => {
        "id, version, name, parent_id, created_at"
    };
}

/// Loads products by id. All shards share one catalogue: its events are in the first shard, and every writer reads
/// it.
pub async fn load(conn: &mut PgConnection, ids: &[ProductId]) -> Result<Vec<Product>, sqlx::Error> {
    let found: Vec<ProductRow> = sqlx::query_as(concat!("SELECT ", product_columns!(), " FROM products WHERE id = ANY($1)"))
        .bind(ids)
        .fetch_all(conn)
        .await?;
    Ok(found.into_iter().map(|row| row.0).collect())
}

pub async fn load_categories(conn: &mut PgConnection, ids: &[CategoryId]) -> Result<Vec<Category>, sqlx::Error> {
    let found: Vec<CategoryRow> = sqlx::query_as(concat!("SELECT ", category_columns!(), " FROM categories WHERE id = ANY($1)"))
        .bind(ids)
        .fetch_all(conn)
        .await?;
    Ok(found.into_iter().map(|row| row.0).collect())
}

/// Loads all products from a shard's log. `verify` compares them with the fold.
pub async fn all(conn: &mut PgConnection, shard: ShardId) -> Result<Vec<Product>, sqlx::Error> {
    let found: Vec<ProductRow> =
        sqlx::query_as(concat!("SELECT ", product_columns!(), " FROM products WHERE shard_id = $1 ORDER BY id"))
            .bind(shard)
            .fetch_all(conn)
            .await?;
    Ok(found.into_iter().map(|row| row.0).collect())
}

/// Loads all categories from a shard's log. `verify` compares them with the fold.
pub async fn all_categories(conn: &mut PgConnection, shard: ShardId) -> Result<Vec<Category>, sqlx::Error> {
    let found: Vec<CategoryRow> =
        sqlx::query_as(concat!("SELECT ", category_columns!(), " FROM categories WHERE shard_id = $1 ORDER BY id"))
            .bind(shard)
            .fetch_all(conn)
            .await?;
    Ok(found.into_iter().map(|row| row.0).collect())
}

pub async fn write(conn: &mut PgConnection, shard: ShardId, products: &[&Product]) -> Result<(), ProjectionError> {
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

pub async fn write_categories(conn: &mut PgConnection, shard: ShardId, categories: &[&Category]) -> Result<(), ProjectionError> {
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

/// Folds the next events of the log into the tables.
pub async fn apply(conn: &mut PgConnection, shard: ShardId, events: &[Recorded]) -> Result<(), ProjectionError> {
    let product_ids: HashSet<_> = events.iter().filter(|r| matches!(r.event, Event::Product(_))).map(|r| r.stream_id).collect();
    let category_ids: HashSet<_> = events.iter().filter(|r| matches!(r.event, Event::Category(_))).map(|r| r.stream_id).collect();
    if product_ids.is_empty() && category_ids.is_empty() {
        return Ok(());
    }
    let (product_ids, category_ids): (Vec<_>, Vec<_>) = (product_ids.into_iter().collect(), category_ids.into_iter().collect());
    let mut products: HashMap<_, _> = load(conn, &product_ids).await?.into_iter().map(|p| (p.id, p)).collect();
    let mut categories: HashMap<_, _> = load_categories(conn, &category_ids).await?.into_iter().map(|c| (c.id, c)).collect();
    for recorded in events {
        fold(&mut products, &mut categories, recorded);
    }
    write(conn, shard, &products.values().collect::<Vec<_>>()).await?;
    write_categories(conn, shard, &categories.values().collect::<Vec<_>>()).await
}

/// Folds one event into maps of products and categories.
pub fn fold(products: &mut HashMap<ProductId, Product>, categories: &mut HashMap<CategoryId, Category>, recorded: &Recorded) {
    let id = recorded.stream_id;
    match &recorded.event {
        Event::Product(event) => {
            if let Some(after) = evolve(products.remove(&id), id, event, &recorded.moment) {
                products.insert(id, after);
            }
        }
        Event::Category(event) => {
            if let Some(after) = evolve_category(categories.remove(&id), id, event, &recorded.moment) {
                categories.insert(id, after);
            }
        }
        _ => {}
    }
}

struct ProductRow<Text = String>(Product<Text>);

impl<Text: DeserializeOwned> FromRow<'_, PgRow> for ProductRow<Text> {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(ProductRow(Product {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            details: row.try_get::<Json<_>, _>("details")?.0,
            image: row.try_get::<Option<Json<_>>, _>("image")?.map(|image| image.0),
            created_at: row.try_get("created_at")?,
            updated_at: row.try_get("updated_at")?,
        }))
    }
}

struct CategoryRow(Category);

impl FromRow<'_, PgRow> for CategoryRow {
    fn from_row(row: &PgRow) -> Result<CategoryRow, sqlx::Error> {
        Ok(CategoryRow(Category {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            name: row.try_get("name")?,
            parent_id: row.try_get("parent_id")?,
            created_at: row.try_get("created_at")?,
        }))
    }
}

#[derive(Clone, Debug, Default)]
pub struct ProductFilter {
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

impl ProductFilter {
    fn write(&self, query: &mut QueryBuilder<Postgres>) {
        query.push(" FROM products WHERE true");
        page::equals(query, "is_active", self.is_active);
        page::equals(query, "category_id", self.category_id);
        page::equals(query, "country", self.country.clone());
        page::equals(query, "currency", self.currency.clone());
        page::between(query, "updated_at", self.updated_since, None);
        if let Some(search) = &self.search {
            let pattern = format!("%{}%", search.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_"));
            query.push(" AND (name ILIKE ").push_bind(pattern.clone());
            query.push(" OR details->>'brand' ILIKE ").push_bind(pattern).push(")");
        }
        if self.with_image {
            query.push(" AND image IS NOT NULL");
        }
    }
}

/// Lists one page of products, newest first, with the total. Uses one statement, because a page can contain the
/// whole catalogue. The long texts stay the JSON that the table stores.
pub async fn list(pool: &PgPool, filter: &ProductFilter, page: Page) -> Result<Listed<Product<Box<RawValue>>>, sqlx::Error> {
    let mut query = QueryBuilder::new("SELECT (SELECT count(*)");
    filter.write(&mut query);
    query.push(concat!(") AS total, ", product_columns!()));
    filter.write(&mut query);
    query.push(" ORDER BY id DESC LIMIT ").push_bind(page.size);
    query.push(" OFFSET ").push_bind((page.number - 1).saturating_mul(page.size));
    // Parse each row while the database sends the next ones.
    let (mut rows, mut total) = (vec![], None);
    let mut found = query.build().fetch(pool);
    while let Some(row) = found.try_next().await? {
        if total.is_none() {
            total = Some(row.try_get("total")?);
        }
        rows.push(ProductRow::from_row(&row)?.0);
    }
    let total = match total {
        Some(total) => total,
        None if page.number == 1 => 0,
        // A page past the end has no row that carries the total.
        None => {
            let mut count = QueryBuilder::new("SELECT count(*)");
            filter.write(&mut count);
            count.build_query_scalar().fetch_one(pool).await?
        }
    };
    Ok(Listed { rows, total })
}

pub async fn find(pool: &PgPool, id: ProductId) -> Result<Option<Product>, sqlx::Error> {
    let found: Option<ProductRow> = sqlx::query_as(concat!("SELECT ", product_columns!(), " FROM products WHERE id = $1"))
        .bind(id)
        .fetch_optional(pool)
        .await?;
    Ok(found.map(|row| row.0))
}

/// Lists all categories, ordered by name.
pub async fn categories(pool: &PgPool) -> Result<Vec<Category>, sqlx::Error> {
    let found: Vec<CategoryRow> =
        sqlx::query_as(concat!("SELECT ", category_columns!(), " FROM categories ORDER BY name, id")).fetch_all(pool).await?;
    Ok(found.into_iter().map(|row| row.0).collect())
}

/// Lists one page of categories, newest first.
pub async fn list_categories(pool: &PgPool, page: Page) -> Result<Listed<Category>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM categories WHERE true");
    };
    let listed: Listed<CategoryRow> = page::fetch(pool, category_columns!(), conditions, "id", page).await?;
    Ok(listed.map(|row| row.0))
}
