//! A relay between two nodes that keeps the requests of one to the other.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_LENGTH, HOST, HeaderMap, TRANSFER_ENCODING};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// Size of the longest request that has no command.
const EMPTY: usize = 350;

/// A request of one node to another, but for its address.
#[derive(Clone, Debug)]
pub struct Kept {
    headers: HeaderMap,
    pub body: Bytes,
}

impl Kept {
    /// Returns the same request with another body.
    pub fn with_body(&self, body: impl Into<Bytes>) -> Kept {
        Kept { headers: self.headers.clone(), body: body.into() }
    }

    /// Sends the request to the listener of a node. Returns the status and the body of the answer.
    pub async fn send(&self, http: &reqwest::Client, url: &str) -> Result<(StatusCode, Bytes), reqwest::Error> {
        let request = http.post(format!("{url}/commands")).headers(self.headers.clone()).body(self.body.clone());
        let answer = request.send().await?;
        Ok((answer.status(), answer.bytes().await?))
    }
}

/// A relay in front of the listener of a node. It ends with the runtime.
#[derive(Debug)]
pub struct Wiretap {
    address: SocketAddr,
    passed: Arc<Mutex<Passed>>,
}

#[derive(Debug, Default)]
struct Passed {
    kept: Vec<Kept>,
    is_refusing: bool,
}

impl Wiretap {
    /// Starts a relay in front of the node at this URL.
    pub async fn before(url: String) -> Wiretap {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tap = Wiretap { address: listener.local_addr().unwrap(), passed: Arc::default() };
        let (passed, http) = (tap.passed.clone(), reqwest::Client::new());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (url, passed, http) = (url.clone(), passed.clone(), http.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| pass(request, url.clone(), passed.clone(), http.clone()));
                    _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        tap
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers 404 instead of passing requests with commands on, or passes them on again. It keeps them in both cases.
    pub fn refuse(&self, is_refusing: bool) {
        self.passed.lock().unwrap().is_refusing = is_refusing;
    }

    /// Returns the requests with commands so far.
    pub fn kept(&self) -> Vec<Kept> {
        self.passed.lock().unwrap().kept.clone()
    }
}

async fn pass(
    request: Request<Incoming>,
    url: String,
    passed: Arc<Mutex<Passed>>,
    http: reqwest::Client,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut headers = request.headers().clone();
    for name in [HOST, CONTENT_LENGTH, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    let kept = Kept { headers, body: request.into_body().collect().await.unwrap().to_bytes() };
    let is_refusing = kept.body.len() > EMPTY && {
        let mut passed = passed.lock().unwrap();
        passed.kept.push(kept.clone());
        passed.is_refusing
    };
    let (status, body) = match is_refusing {
        true => (StatusCode::NOT_FOUND, Bytes::new()),
        false => kept.send(&http, &url).await.unwrap_or((StatusCode::BAD_GATEWAY, Bytes::new())),
    };
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    Ok(answer)
}
