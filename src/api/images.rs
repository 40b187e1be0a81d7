//! Product images: their URLs as JSON, and their bytes.
//!
//! The specification's rate limit for product images covers all of it, because the bytes are also served under
//! `/api/v1/products/{id}/image`.

use ledger_events::ProductId;
use ledger_events::catalogue::{ImageType, ProductImage as Image};
use ledger_projections::catalogue::{self, ProductFilter};
use poem::http::{HeaderValue, header};
use poem::{IntoResponse, Response};
use poem_openapi::param::{Path, Query};
use poem_openapi::registry::{MetaMediaType, MetaResponse, MetaResponses, MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::{ApiResponse, Enum, Object, OpenApi};
use serde::Serialize;

use super::conditional::{Conditional, ETag, IfNoneMatch};
use super::error::{ApiError, documented_header};
use super::page::Page;
use super::principal::Caller;
use super::reply::{Listed, Plural, Reply};
use super::scalars::Timestamp;
use super::state::{ApiState, State, Tag, not_found, rows_of};
use crate::ledger::images;
use crate::ledger::images::thumbnails::{self, Size};

/// `Cache-Control` for image bytes. They never change, because a new image gets a new URL.
const FOR_EVER: &str = "private, max-age=31536000, immutable";

/// Location of a product's image.
#[derive(Object, Serialize)]
struct ProductImage {
    /// Unique identifier of the product.
    product_id: i64,
    /// URL of the image. GET it with your API key. The URL changes when the image does.
    image_url: String,
    /// Media type of the image: `image/png`, `image/jpeg` or `image/webp`.
    content_type: String,
    /// Time at which the image was set.
    updated_at: Timestamp,
}

impl Plural for ProductImage {
    const PLURAL: &'static str = "images";
}

impl ProductImage {
    fn of(state: &ApiState, id: ProductId, image: &Image) -> Self {
        Self {
            product_id: id.0,
            image_url: state.image_url(id, image),
            content_type: image.set.content_type.as_str().to_owned(),
            updated_at: image.updated_at.into(),
        }
    }
}

/// Size of an image.
///
/// - `original`: the image as it was uploaded.
/// - `thumbnail`: a JPEG of at most 240 by 160 pixels, for lists.
/// - `preview`: a JPEG of at most 640 by 480 pixels.
///
/// A small image is returned as it was uploaded for every size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase")]
pub enum ImageSize {
    #[default]
    Original,
    Thumbnail,
    Preview,
}

impl ImageSize {
    /// Returns the size of the copy of an image; `None` for the image itself.
    fn of_copy(self, image: &Image) -> Option<Size> {
        let size = match self {
            Self::Original => return None,
            Self::Thumbnail => Size::Thumbnail,
            Self::Preview => Size::Preview,
        };
        usize::try_from(image.set.size).is_ok_and(|bytes| bytes > size.max_bytes()).then_some(size)
    }
}

/// The bytes of an image, with the type detected from the bytes. `nosniff` keeps browsers from guessing another one.
pub struct Picture {
    content_type: ImageType,
    bytes: Vec<u8>,
}

impl Picture {
    /// Loads the bytes of an image.
    ///
    /// # Errors
    /// 404 if the image is wanted smaller, but cannot be decoded. 500 if the bytes are missing.
    pub async fn load(state: &ApiState, id: ProductId, image: &Image, size: ImageSize) -> Result<Picture, ApiError> {
        if let Some(size) = size.of_copy(image) {
            let bytes = thumbnails::copy(state.ledger.pool(), id, &image.set.sha256, size).await?;
            let undecodable = || not_found().message("The image cannot be decoded, so it has no smaller copy.");
            return Ok(Picture { content_type: ImageType::Jpeg, bytes: bytes.ok_or_else(undecodable)? });
        }
        let bytes = images::load(state.ledger.pool(), id, &image.set.sha256).await?;
        let bytes = bytes.ok_or_else(|| ApiError::internal(format!("the bytes of the image of product {} are missing", id.0)))?;
        Ok(Picture { content_type: image.set.content_type, bytes })
    }
}

impl IntoResponse for Picture {
    fn into_response(self) -> Response {
        Response::builder()
            .content_type(self.content_type.as_str())
            .header(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
            .body(self.bytes)
    }
}

/// Returns the schema of binary data.
pub fn binary() -> MetaSchemaRef {
    MetaSchemaRef::Inline(Box::new(MetaSchema::new_with_format("string", "binary")))
}

impl ApiResponse for Picture {
    fn meta() -> MetaResponses {
        let types = [ImageType::Png, ImageType::Jpeg, ImageType::Webp];
        let content = types.map(|kind| MetaMediaType { content_type: kind.as_str(), schema: binary() }).into();
        let headers = vec![documented_header::<String>("X-Content-Type-Options", "`nosniff`")];
        MetaResponses {
            responses: vec![MetaResponse { description: "OK", status: Some(200), status_range: None, content, headers }],
        }
    }

    fn register(_: &mut Registry) {}
}

/// Loads the image of an active product.
///
/// # Errors
/// 404 if the product does not exist, is inactive, or has no image.
async fn find(state: &ApiState, id: ProductId) -> Result<Image, ApiError> {
    let found = catalogue::find(state.ledger.pool(), id).await?;
    found.filter(|product| product.details.is_active).and_then(|product| product.image).ok_or_else(not_found)
}

pub struct Images;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Products")]
impl Images {
    /// List product images
    ///
    /// Returns the images of all active products that have one, newest products first.
    #[oai(path = "/products/images", method = "get", operation_id = "list_product_images")]
    async fn list(
        &self,
        _caller: Caller,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Images per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<ProductImage>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let filter = ProductFilter { is_active: Some(true), with_image: true, ..ProductFilter::default() };
        let found = catalogue::list(state.ledger.pool(), &filter, rows_of(page)).await?;
        let total = u64::try_from(found.total).unwrap_or_default();
        let images = found.rows.iter().filter_map(|product| Some(ProductImage::of(&state, product.id, product.image.as_ref()?)));
        Ok(Listed::page(images.collect(), page, total))
    }

    /// Retrieve a product's image
    ///
    /// Returns the image's URL and media type. 404 if the product is inactive or has no image.
    #[oai(path = "/products/:id/image", method = "get", operation_id = "get_product_image")]
    async fn get(
        &self,
        _caller: Caller,
        state: State<'_>,
        /// Unique identifier of the product.
        id: Path<i64>,
    ) -> Result<Reply<ProductImage>, ApiError> {
        let id = ProductId(id.0);
        let image = find(&state, id).await?;
        Ok(Reply(ProductImage::of(&state, id, &image)))
    }

    /// Download an image
    ///
    /// Returns the bytes of the image at `image_url`. The URL of a replaced image returns 404.
    #[oai(path = "/products/:id/image/:version", method = "get", operation_id = "get_product_image_bytes")]
    async fn bytes(
        &self,
        _caller: Caller,
        state: State<'_>,
        /// Unique identifier of the product.
        id: Path<i64>,
        /// Version of the image, taken from `image_url`.
        version: Path<String>,
        /// Size of the image. Default: `original`.
        size: Query<Option<ImageSize>>,
        /// `ETag` of your cached copy. The response is 304 if the copy is current.
        #[oai(name = "If-None-Match")]
        known: IfNoneMatch,
    ) -> Result<Conditional<Picture>, ApiError> {
        let id = ProductId(id.0);
        let image = find(&state, id).await?;
        if image.version() != version.0 {
            return Err(not_found());
        }
        let size = size.0.unwrap_or_default();
        let etag = match size.of_copy(&image) {
            Some(size) => ETag::named(&format!("{}-{}", image.set.sha256, size.as_str())),
            None => ETag::named(&image.set.sha256),
        };
        if known.has(&etag) {
            return Ok(Conditional::not_modified(etag, FOR_EVER));
        }
        Ok(Conditional::modified(etag, FOR_EVER, Picture::load(&state, id, &image, size).await?))
    }
}
