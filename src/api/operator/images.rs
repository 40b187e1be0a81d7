//! `/admin/v1/products/:id/image`: a product's image, as its bytes.

use ledger_events::catalogue::{ImageType, ProductImageSet};
use ledger_projections::catalogue;
use poem::{Request, RequestBody};
use poem_openapi::param::Path;
use poem_openapi::registry::{MetaMediaType, MetaRequest, Registry};
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions, OpenApi};
use sha2::{Digest, Sha256};

use super::catalogue::undiscounted;
use crate::api::body::read;
use crate::api::error::{ApiError, Code};
use crate::api::images::binary;
use crate::api::outcome::answered;
use crate::api::principal::{Admin, Caller};
use crate::api::products::Product;
use crate::api::reply::Reply;
use crate::api::state::{State, Tag, not_found, origin};
use crate::ledger::{Answer, Command, FIRST_SHARD, images};

/// The limit of an image, in bytes.
const MAX_BYTES: usize = 2 << 20;

/// An image as its bytes: PNG, JPEG or WebP by what they are, whatever the Content-Type says.
///
/// # Errors
/// 413 over the limit, 415 for anything else, SVG too: it can carry a script.
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
        Some(MetaRequest { description: Some("At most 2 MiB."), content, required: true })
    }

    async fn from_request(_: &'a Request, body: &mut RequestBody, _: ExtractParamOptions<()>) -> poem::Result<Self> {
        let bytes = read(body.take()?, MAX_BYTES).await?;
        let refused = || ApiError::new(Code::UnsupportedMediaType).message("The image must be a PNG, a JPEG or a WebP.");
        let content_type = ImageType::of(&bytes).ok_or_else(refused)?;
        Ok(Self { content_type, bytes })
    }
}

pub struct Images;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Catalogue")]
impl Images {
    /// Set a product's image
    ///
    /// PNG, JPEG or WebP, up to 2 MiB; it takes the place of the one before.
    #[oai(path = "/products/:id/image", method = "put", operation_id = "set_product_image")]
    async fn set(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// The product's id.
        id: Path<i64>,
        body: ImageBytes,
    ) -> Result<Reply<Product>, ApiError> {
        let pool = state.ledger.pool();
        // The bytes of no product need not be kept.
        catalogue::find(pool, id.0).await?.ok_or_else(not_found)?;
        let sha256: [u8; 32] = Sha256::digest(&body.bytes).into();
        let size = i32::try_from(body.bytes.len()).map_err(ApiError::internal)?;
        images::store(pool, id.0, &sha256, &body.bytes).await?;
        let image = ProductImageSet { sha256: hex::encode(sha256), content_type: body.content_type, size };
        let command = Command::SetProductImage { product_id: id.0, image };
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        let product = answered!(answer, Answer::Product(product) => product)?;
        // What is left behind is taken away with the next image.
        if let Err(error) = images::forget_others(pool, id.0, &sha256).await {
            tracing::warn!(product_id = id.0, %error, "images that were replaced could not be deleted");
        }
        Ok(Reply(undiscounted(&state, product)))
    }
}
