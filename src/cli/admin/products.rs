//! `admin product …`: manages the products of the catalogue.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;

use super::{PageArgs, ask, filled, get, list, post, put};
use crate::cli::client::{Body, Client};
use crate::cli::output::{Output, with_progress};

#[derive(Subcommand, Debug)]
pub enum Product {
    /// Create a product
    Create(Box<ProductArgs>),
    /// List products
    List(PageArgs),
    /// Show one product
    Show {
        /// Product id
        product: i64,
    },
    /// Change a product; fields that you leave out stay as they are
    Change {
        /// Product id
        product: i64,
        #[command(flatten)]
        change: Box<ProductChange>,
    },
    /// Set the image of a product
    Image {
        /// Product id
        product: i64,
        /// PNG, JPEG or WebP file of at most 2 MiB
        file: PathBuf,
    },
}

#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
pub struct ProductChange {
    /// Name of the product
    #[arg(long)]
    name: Option<String>,
    /// Brand of the product
    #[arg(long)]
    brand: Option<String>,
    /// ISO 3166-1 alpha-2 country code, for example DE
    #[arg(long)]
    country: Option<String>,
    /// Fixed face values, for example 10,25,50
    #[arg(long, value_delimiter = ',', value_name = "AMOUNTS", conflicts_with = "min")]
    denominations: Option<Vec<String>>,
    /// Smallest face value of a product with a range of face values
    #[arg(long, value_name = "AMOUNT", requires = "max")]
    min: Option<String>,
    /// Largest face value of a product with a range of face values
    #[arg(long, value_name = "AMOUNT", requires = "min")]
    max: Option<String>,
    /// Category id
    #[arg(long, value_name = "ID")]
    category: Option<i64>,
    /// Remove the product from its category
    #[arg(long, conflicts_with = "category")]
    no_category: bool,
    /// Maximum number of units in one order
    #[arg(long, value_name = "COUNT")]
    max_quantity: Option<i32>,
    /// Description for clients
    #[arg(long)]
    description: Option<String>,
    /// Terms of use for clients
    #[arg(long)]
    terms: Option<String>,
    /// Whether clients can order the product
    #[arg(long, value_name = "BOOL")]
    active: Option<bool>,
}

#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("face_values").required(true).args(["denominations", "min"])))]
pub struct ProductArgs {
    /// Name of the product
    name: String,
    /// Brand of the product
    #[arg(long)]
    brand: String,
    /// ISO 3166-1 alpha-2 country code, for example DE
    #[arg(long)]
    country: String,
    /// ISO 4217 currency code, for example EUR
    #[arg(long)]
    currency: String,
    /// Fixed face values, for example 10,25,50
    #[arg(long, value_delimiter = ',', value_name = "AMOUNTS")]
    denominations: Vec<String>,
    /// Smallest face value of a product with a range of face values
    #[arg(long, value_name = "AMOUNT", requires = "max")]
    min: Option<String>,
    /// Largest face value of a product with a range of face values
    #[arg(long, value_name = "AMOUNT", requires = "min")]
    max: Option<String>,
    /// Category id
    #[arg(long, value_name = "ID")]
    category: Option<i64>,
    /// Maximum number of units in one order
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    max_quantity: i32,
    /// Description for clients
    #[arg(long, default_value = "")]
    description: String,
    /// Terms of use for clients
    #[arg(long, default_value = "")]
    terms: String,
    /// Create the product switched off, so that clients cannot order it yet
    #[arg(long)]
    inactive: bool,
}

pub async fn run(product: Product, client: &Client, output: &Output) -> anyhow::Result<()> {
    let operation = match product {
        Product::Create(product) => post("/products", product_body(*product)),
        Product::List(page) => list("/products", &page),
        Product::Show { product } => get(&format!("/products/{product}")),
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

/// Uploads the image file as it is. The service decides whether it is an image, and of which kind.
async fn set_image(product: i64, file: &Path, client: &Client, output: &Output) -> anyhow::Result<()> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let path = format!("/admin/v1/products/{product}/image");
    let reply = client.send(Method::PUT, &path, Some(Body::bytes(bytes)), &[]);
    let data = with_progress("waiting for the response", reply).await?.data()?;
    Ok(output.facts(&data)?)
}
