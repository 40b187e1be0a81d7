//! Small copies of product images. A copy is made when somebody first asks for it, and kept beside the image.
//!
//! An image may be hostile: a few kilobytes can stand for gigabytes of pixels. So its dimensions and its memory are bounded
//! before it is decoded, and one image is decoded at a time.

use std::io::Cursor;

use image::codecs::jpeg::JpegEncoder;
use image::imageops::thumbnail;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageError, ImageReader, Limits, Rgb, RgbImage};
use ledger_database::PgPool;
use ledger_events::ProductId;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

use super::load;

/// Largest width and height of an image that is decoded, in pixels.
const MAX_PIXELS: u32 = 8_192;
/// Largest memory that decoding may take.
const MAX_MEMORY: u64 = 256 << 20;
/// Qualities to encode with, until the copy is small enough.
const QUALITIES: [u8; 4] = [80, 60, 40, 20];
/// The decoder, which one request uses at a time.
static DECODER: Semaphore = Semaphore::const_new(1);

/// Size of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// For lists: a page shows two dozen of them.
    Thumbnail,
    /// For the page of one product.
    Preview,
}

impl Size {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Thumbnail => "thumbnail",
            Self::Preview => "preview",
        }
    }

    /// Returns the largest width and height, in pixels.
    fn bounds(self) -> (u32, u32) {
        match self {
            Self::Thumbnail => (240, 160),
            Self::Preview => (640, 480),
        }
    }

    /// Returns the size in bytes up to which an image needs no copy.
    pub fn max_bytes(self) -> usize {
        match self {
            Self::Thumbnail => 6 << 10,
            Self::Preview => 64 << 10,
        }
    }
}

/// Returns a copy of an image in JPEG, given the image's SHA-256 in hex. `None` if the image is missing or cannot be
/// decoded.
///
/// # Errors
/// Any error of the database.
pub async fn copy(pool: &PgPool, product: ProductId, sha256: &str, size: Size) -> Result<Option<Vec<u8>>, sqlx::Error> {
    if let Some(kept) = kept(pool, product, sha256, size).await? {
        return Ok(kept);
    }
    // The semaphore is never closed.
    let permit = DECODER.acquire().await.map_err(|_| sqlx::Error::PoolClosed)?;
    // Another request may have made it meanwhile.
    if let Some(kept) = kept(pool, product, sha256, size).await? {
        return Ok(kept);
    }
    let Some(bytes) = load(pool, product, sha256).await? else { return Ok(None) };
    // The decoder stays taken until it ends, also if the client hangs up before.
    let shrinking = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        shrink(&bytes, size)
    });
    let made = outcome(shrinking.await)?
        .inspect_err(|error| tracing::info!(product_id = product.0, %error, "an image has no copy: it cannot be decoded"))
        .ok();
    // Meanwhile the product may have got another image, which has deleted the copies of this one.
    sqlx::query(
        "INSERT INTO product_thumbnails (product_id, sha256, size, bytes) SELECT id, decode($2, 'hex'), $3, $4 FROM products
         WHERE id = $1 AND image->>'sha256' = $2 ON CONFLICT DO NOTHING",
    )
    .bind(product)
    .bind(sha256)
    .bind(size.as_str())
    .bind(&made)
    .execute(pool)
    .await?;
    Ok(made)
}

/// Returns the copy that is kept, if one was tried; the inner `None` stands for an image that cannot be decoded.
async fn kept(pool: &PgPool, product: ProductId, sha256: &str, size: Size) -> Result<Option<Option<Vec<u8>>>, sqlx::Error> {
    sqlx::query_scalar("SELECT bytes FROM product_thumbnails WHERE product_id = $1 AND sha256 = decode($2, 'hex') AND size = $3")
        .bind(product)
        .bind(sha256)
        .bind(size.as_str())
        .fetch_optional(pool)
        .await
}

/// Returns the result of a decoder's thread. A hostile image that makes the decoder panic does so each time, so it counts as
/// one that cannot be decoded.
fn outcome(shrinking: Result<Result<Vec<u8>, ImageError>, JoinError>) -> Result<Result<Vec<u8>, Undecodable>, sqlx::Error> {
    match shrinking {
        Ok(made) => Ok(made.map_err(Undecodable::Image)),
        Err(ended) if ended.is_panic() => Ok(Err(Undecodable::Panic)),
        Err(_) => Err(sqlx::Error::WorkerCrashed),
    }
}

/// Reason why an image has no copy.
#[derive(Debug, thiserror::Error)]
enum Undecodable {
    #[error(transparent)]
    Image(ImageError),
    #[error("the decoder panicked")]
    Panic,
}

/// Makes a copy within the bounds of a size.
fn shrink(bytes: &[u8], size: Size) -> Result<Vec<u8>, ImageError> {
    let mut limits = Limits::no_limits();
    (limits.max_image_width, limits.max_image_height) = (Some(MAX_PIXELS), Some(MAX_PIXELS));
    limits.max_alloc = Some(MAX_MEMORY);
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?;
    reader.limits(limits.clone());
    let mut decoder = reader.into_decoder()?;
    // Decoders do not count the pixels themselves.
    limits.reserve(decoder.total_bytes())?;
    let orientation = decoder.orientation()?;
    let mut image = DynamicImage::from_decoder(decoder)?;
    // A rotation copies the pixels, so it comes last. A copy that will lie on its side has the bounds of its final form.
    let (width, height) = match orientation {
        Orientation::NoTransforms | Orientation::Rotate180 | Orientation::FlipHorizontal | Orientation::FlipVertical => {
            size.bounds()
        }
        _ => (size.bounds().1, size.bounds().0),
    };
    if image.width() > width || image.height() > height {
        image = image.thumbnail(width, height);
    }
    image.apply_orientation(orientation);
    let mut flat = on_white(&image);
    loop {
        for quality in QUALITIES {
            let mut made = vec![];
            flat.write_with_encoder(JpegEncoder::new_with_quality(&mut made, quality))?;
            // A picture of one pixel always fits.
            if made.len() <= size.max_bytes() {
                return Ok(made);
            }
        }
        // Noise is too large at any quality, so the picture gets smaller.
        flat = thumbnail(&flat, (flat.width() * 3 / 4).max(1), (flat.height() * 3 / 4).max(1));
    }
}

/// Puts an image on a white ground, because JPEG has no transparency.
fn on_white(image: &DynamicImage) -> RgbImage {
    let image = image.to_rgba8();
    RgbImage::from_fn(image.width(), image.height(), |x, y| {
        let [red, green, blue, alpha] = image.get_pixel(x, y).0.map(u16::from);
        let mixed = |channel: u16| u8::try_from((channel * alpha + 255 * (255 - alpha)) / 255).unwrap_or(u8::MAX);
        Rgb([mixed(red), mixed(green), mixed(blue)])
    })
}

#[cfg(test)]
mod tests {
    use image::{ImageFormat, Rgba, RgbaImage};

    use super::*;

    fn png(image: &RgbaImage) -> Vec<u8> {
        let mut bytes = Cursor::new(vec![]);
        image.write_to(&mut bytes, ImageFormat::Png).unwrap();
        bytes.into_inner()
    }

    /// Noise is the worst case of every encoder.
    fn noise(width: u32, height: u32) -> RgbaImage {
        let mut state = 1_u32;
        RgbaImage::from_fn(width, height, |_, _| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [red, green, blue, _] = state.to_be_bytes();
            Rgba([red, green, blue, 255])
        })
    }

    #[test]
    fn a_copy_fits_into_its_size_and_keeps_the_proportions() {
        let even = RgbaImage::from_pixel(900, 600, Rgba([200, 100, 50, 255]));
        for (size, width, height) in [(Size::Thumbnail, 240, 160), (Size::Preview, 640, 427)] {
            let read = image::load_from_memory(&shrink(&png(&even), size).unwrap()).unwrap();
            assert_eq!((read.width(), read.height()), (width, height));
            // It has no pixels to spare, so quality alone does not make it small enough.
            let made = shrink(&png(&noise(width, height)), size).unwrap();
            let read = image::load_from_memory(&made).unwrap();
            assert!(made.len() <= size.max_bytes(), "{}", made.len());
            assert!(read.width() < width, "{}", read.width());
            assert!((read.width() * height).abs_diff(read.height() * width) <= 2 * width, "{} × {}", read.width(), read.height());
        }
    }

    #[test]
    fn a_transparent_image_is_put_on_white() {
        let made = shrink(&png(&RgbaImage::from_pixel(8, 8, Rgba([0, 0, 0, 0]))), Size::Thumbnail).unwrap();
        let read = image::load_from_memory(&made).unwrap().to_rgb8();
        assert_eq!((read.width(), read.get_pixel(4, 4).0), (8, [255, 255, 255]));
    }

    #[tokio::test]
    async fn an_image_that_makes_the_decoder_panic_cannot_be_decoded() {
        let panicked = tokio::task::spawn_blocking(|| panic!("a defect of the decoder")).await;
        assert!(matches!(outcome(panicked), Ok(Err(Undecodable::Panic))));
        // A node that stops has not tried the image.
        let stopped = tokio::spawn(std::future::pending());
        stopped.abort();
        assert!(matches!(outcome(stopped.await), Err(sqlx::Error::WorkerCrashed)));
    }

    #[test]
    fn a_bomb_and_a_broken_image_are_refused() {
        // The second one has few enough pixels, of 8 bytes each: 512 MiB.
        for (side, depth) in [(60_000, 8), (8_192, 16)] {
            let made = shrink(&png_header(side, depth), Size::Preview);
            assert!(matches!(made, Err(ImageError::Limits(_))), "{side}: {made:?}");
        }
        assert!(shrink(b"\x89PNG\r\n\x1a\n", Size::Preview).is_err());
        assert!(shrink(b"text", Size::Preview).is_err());
    }

    /// Returns a PNG of this width and height, with these bits a channel, that ends after its header.
    fn png_header(side: u32, depth: u8) -> Vec<u8> {
        let mut header = b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR".to_vec();
        header.extend([side, side].map(u32::to_be_bytes).concat());
        header.extend([depth, 6, 0, 0, 0]);
        let sum = crc32(&header[12..]);
        header.extend(sum.to_be_bytes());
        header.extend(b"\x00\x00\x00\x00IDAT\x35\xaf\x06\x1e");
        header
    }

    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0_u32, |sum, byte| {
            (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 })
        })
    }
}
