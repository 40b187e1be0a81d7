//! `admin product …`: what can be ordered.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;

use super::{PageArgs, ask, filled, list, post, put};
use crate::cli::client::{Body, Client};
use crate::cli::output::{Output, with_progress};

#[derive(Subcommand, Debug)]
pub enum Product {
    Create(Box<ProductArgs>),
    List(PageArgs),
    /// Change what is given; the rest stays
    Change {
        product: i64,
        #[command(flatten)]
        change: Box<ProductChange>,
    },
    /// Set the image: a PNG, JPEG or WebP file of at most 2 MiB
    Image {
        product: i64,
        file: PathBuf,
    },
}

#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
pub struct ProductChange {
    #[arg(long)]
    name: Option<String>,
    #[arg(long)]
    brand: Option<String>,
    /// ISO 3166-1 alpha-2
    #[arg(long)]
    country: Option<String>,
    /// The face values, such as 10,25,50
    #[arg(long, value_delimiter = ',', value_name = "AMOUNTS", conflicts_with = "min")]
    denominations: Option<Vec<String>>,
    /// The smallest face value, if any between two can be ordered
    #[arg(long, value_name = "AMOUNT", requires = "max")]
    min: Option<String>,
    /// The largest
    #[arg(long, value_name = "AMOUNT", requires = "min")]
    max: Option<String>,
    #[arg(long, value_name = "ID")]
    category: Option<i64>,
    /// In no category
    #[arg(long, conflicts_with = "category")]
    no_category: bool,
    /// The most units of one order
    #[arg(long, value_name = "COUNT")]
    max_quantity: Option<i32>,
    #[arg(long)]
    description: Option<String>,
    #[arg(long)]
    terms: Option<String>,
    /// Whether it can be ordered
    #[arg(long, value_name = "BOOL")]
    active: Option<bool>,
}

#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("face_values").required(true).args(["denominations", "min"])))]
pub struct ProductArgs {
    name: String,
    #[arg(long)]
    brand: String,
    /// ISO 3166-1 alpha-2
    #[arg(long)]
    country: String,
    /// ISO 4217
    #[arg(long)]
    currency: String,
    /// The face values, such as 10,25,50
    #[arg(long, value_delimiter = ',', value_name = "AMOUNTS")]
    denominations: Vec<String>,
    /// The smallest face value, if any between two can be ordered
    #[arg(long, value_name = "AMOUNT", requires = "max")]
    min: Option<String>,
    /// The largest
    #[arg(long, value_name = "AMOUNT", requires = "min")]
    max: Option<String>,
    #[arg(long, value_name = "ID")]
    category: Option<i64>,
    /// The most units of one order
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    max_quantity: i32,
    #[arg(long, default_value = "")]
    description: String,
    #[arg(long, default_value = "")]
    terms: String,
    /// Not to be ordered yet
    #[arg(long)]
    inactive: bool,
}

pub async fn run(product: Product, client: &Client, output: &Output) -> anyhow::Result<()> {
    let operation = match product {
        Product::Create(product) => post("/products", product_body(*product)),
        Product::List(page) => list("/products", &page),
        Product::Change { product, change } => put(&format!("/products/{product}"), product_change(*change)),
        Product::Image { product, file } => return set_image(product, &file, client, output).await,
    };
    ask(client, operation, output).await
}

fn product_body(product: ProductArgs) -> Value {
    let is_range = product.min.is_some();
    filled([
        ("name", Some(product.name.into())),
        ("brand", Some(product.brand.into())),
        ("category_id", product.category.map(Value::from)),
        ("country", Some(product.country.into())),
        ("currency", Some(product.currency.into())),
        ("denomination_type", Some(if is_range { "RANGE" } else { "FIXED" }.into())),
        ("denominations", (!is_range).then(|| product.denominations.into())),
        ("min_denomination", product.min.map(Value::from)),
        ("max_denomination", product.max.map(Value::from)),
        ("max_quantity", Some(product.max_quantity.into())),
        ("description", Some(product.description.into())),
        ("terms", Some(product.terms.into())),
        ("is_active", Some((!product.inactive).into())),
    ])
}

fn product_change(change: ProductChange) -> Value {
    let kind = change.denominations.as_ref().map(|_| "FIXED").or(change.min.as_ref().map(|_| "RANGE"));
    filled([
        ("name", change.name.map(Value::from)),
        ("brand", change.brand.map(Value::from)),
        ("category_id", if change.no_category { Some(Value::Null) } else { change.category.map(Value::from) }),
        ("country", change.country.map(Value::from)),
        ("denomination_type", kind.map(Value::from)),
        ("denominations", change.denominations.map(Value::from)),
        ("min_denomination", change.min.map(Value::from)),
        ("max_denomination", change.max.map(Value::from)),
        ("max_quantity", change.max_quantity.map(Value::from)),
        ("description", change.description.map(Value::from)),
        ("terms", change.terms.map(Value::from)),
        ("is_active", change.active.map(Value::from)),
    ])
}

/// Which kind of image it is, and whether it is one, is the service's to judge.
async fn set_image(product: i64, file: &Path, client: &Client, output: &Output) -> anyhow::Result<()> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let path = format!("/admin/v1/products/{product}/image");
    let reply = client.send(Method::PUT, &path, Some(Body::bytes(bytes)), &[]);
    let data = with_progress("waiting for the answer", reply).await?.data()?;
    Ok(output.facts(&data)?)
}
