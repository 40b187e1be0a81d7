//! Bodies of HTTP responses from servers that nobody here vouches for.

use reqwest::Response;

/// Reads the body of a response, up to a number of bytes. Returns `None` if the body is longer.
///
/// # Errors
/// If the connection fails before the body's end.
pub async fn up_to(most: usize, response: &mut Response) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = vec![];
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > most {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}
