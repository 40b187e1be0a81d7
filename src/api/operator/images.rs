//! `/admin/v1/products/:id/image`: a product's image as raw bytes.

use ledger_events::ProductId;
use ledger_events::catalogue::{ImageType, ProductImageSet};
use ledger_projections::catalogue;
use poem::{Request, RequestBody};
use poem_openapi::param::{Path, Query};
use poem_openapi::registry::{MetaMediaType, MetaRequest, Registry};
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions, OpenApi};
use sha2::{Digest, Sha256};

use super::catalogue::undiscounted;
use crate::access::Operator;
use crate::api::body::read;
use crate::api::error::{ApiError, Code};
use crate::api::images::{ImageSize, Picture, binary};
use crate::api::outcome::answered;
use crate::api::principal::{Admin, Caller};
use crate::api::products::Product;
use crate::api::reply::Reply;
use crate::api::state::{State, Tag, not_found, origin};
use crate::ledger::{CommandResult, FIRST_SHARD, commands, images};

/// Maximum size of an image, in bytes.
const MAX_BYTES: usize = 2 << 20;

/// Raw bytes of an image. The bytes decide between PNG, JPEG and WebP, regardless of the Content-Type.
///
/// # Errors
///
/// 413 over the limit, 415 for any other format. SVG is refused because it can carry a script.
struct ImageBytes {
    content_type: ImageType,
    bytes: Vec<u8>,
}

impl<'a> ApiExtractor<'a> for ImageBytes {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::RequestObject];
    type ParamType = ();
    type ParamRawType = ();

    fn register(_: &mut Registry) {}

    fn request_meta() -> Option<MetaRequest> {
        let types = [ImageType::Png, ImageType::Jpeg, ImageType::Webp];
        let content = types.map(|kind| MetaMediaType { content_type: kind.as_str(), schema: binary() }).into();
        Some(MetaRequest { description: Some("Raw bytes of the image, at most 2 MiB."), content, required: true })
    }

    async fn from_request(_: &'a Request, body: &mut RequestBody, _: ExtractParamOptions<()>) -> poem::Result<Self> {
        let bytes = read(body.take()?, MAX_BYTES).await?;
        let refused = || ApiError::new(Code::UnsupportedMediaType).message("The image must be PNG, JPEG or WebP.");
        let content_type = ImageType::of(&bytes).ok_or_else(refused)?;
        Ok(Self { content_type, bytes })
    }
}

pub struct Images;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Catalogue")]
impl Images {
    /// Download a product's image
    ///
    /// Returns the bytes of the current image of a product, also of an inactive one. 404 if it has none.
    #[oai(path = "/products/:id/image", method = "get", operation_id = "get_any_product_image")]
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the product.
        id: Path<i64>,
        /// Size of the image. Default: `original`.
        size: Query<Option<ImageSize>>,
    ) -> Result<Picture, ApiError> {
        let id = ProductId(id.0);
        let product = catalogue::find(state.ledger.pool(), id).await?;
        let image = product.and_then(|product| product.image).ok_or_else(not_found)?;
        Picture::load(&state, id, &image, size.0.unwrap_or_default()).await
    }

    /// Set a product's image
    ///
    /// Uploads a PNG, JPEG or WebP image of at most 2 MiB. It replaces the current image.
    #[oai(path = "/products/:id/image", method = "put", operation_id = "set_product_image")]
    async fn set(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the product.
        id: Path<i64>,
        body: ImageBytes,
    ) -> Result<Reply<Product>, ApiError> {
        let id = ProductId(id.0);
        let pool = state.ledger.pool();
        // An image of a product that does not exist is not stored.
        catalogue::find(pool, id).await?.ok_or_else(not_found)?;
        let sha256: [u8; 32] = Sha256::digest(&body.bytes).into();
        let size = i32::try_from(body.bytes.len()).map_err(ApiError::internal)?;
        images::store(pool, id, &sha256, &body.bytes).await?;
        let image = ProductImageSet { sha256: hex::encode(sha256), content_type: body.content_type, size };
        let command = commands::SetProductImage { product_id: id, image };
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        let product = answered!(answer, CommandResult::Product(product) => product)?;
        // If the deletion fails, the next upload deletes the remaining images.
        if let Err(error) = images::forget_others(pool, id, &sha256).await {
            tracing::warn!(product_id = id.0, %error, "failed to delete replaced images; the next upload retries");
        }
        Ok(Reply(undiscounted(&state, product)))
    }
}
