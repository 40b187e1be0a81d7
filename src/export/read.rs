//! Reads an export in order and in constant memory, and parses it on several threads.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::ExportError;

/// First bytes of a zstd frame.
pub const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Approximate size of the chunks of lines that threads parse.
const CHUNK_BYTES: usize = 256 * 1024;
/// Longest line. No event is longer, so a file with a longer line is not an export.
pub const LINE_BYTES: u64 = 256 * 1024 * 1024;
/// Capacity of each thread's queues: chunks to parse, and parsed chunks.
const CHUNKS_AHEAD: usize = 2;

/// Returns whether a file is compressed, judging by its content and not by its name.
pub fn is_compressed(reader: &mut impl BufRead) -> io::Result<bool> {
    Ok(reader.fill_buf()?.starts_with(&ZSTD_MAGIC))
}

/// Opens an export for reading its lines, compressed or not.
pub fn open(path: &Path) -> io::Result<Box<dyn BufRead + Send>> {
    let mut reader = BufReader::with_capacity(CHUNK_BYTES, File::open(path)?);
    Ok(match is_compressed(&mut reader)? {
        true => Box::new(BufReader::with_capacity(CHUNK_BYTES, zstd::stream::Decoder::with_buffer(reader)?)),
        false => Box::new(reader),
    })
}

/// Reads one line including its line break into `line`. Returns false at the end of the file.
///
/// # Errors
/// Returns an error when the file ends in the middle of a line, or when a line is longer than [`LINE_BYTES`].
pub fn line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    let begin = line.len();
    reader.take(LINE_BYTES).read_until(b'\n', line)?;
    match line.last() {
        _ if line.len() == begin => Ok(false),
        Some(b'\n') => Ok(true),
        _ if (line.len() - begin) as u64 == LINE_BYTES => Err(io::Error::new(io::ErrorKind::InvalidData, "the line is too long")),
        _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends in the middle of a line")),
    }
}

/// Complete lines, with the number of the first.
struct Chunk {
    first_line: u64,
    lines: Vec<u8>,
}

/// A chunk, or the line number and reason of a read error.
type Dealt = Result<Chunk, (u64, String)>;

/// The parsed lines of a chunk, or the line number and reason of an error.
type Parsed<T> = Result<Vec<T>, (u64, String)>;

/// Parses every line on `threads` threads, and passes the results to `take` in the file's order.
///
/// # Errors
/// Returns [`ExportError::Line`] with the number of a line that cannot be read or parsed, after taking all chunks before
/// its own. Also returns any error of `take`.
pub fn each_page<T, P, E>(path: &Path, threads: usize, parse: P, mut take: impl FnMut(Vec<T>) -> Result<(), E>) -> Result<(), E>
where
    T: Send,
    P: Fn(&str) -> Result<T, String> + Sync,
    E: From<ExportError>,
{
    let at = |line, problem| ExportError::Line { path: path.to_owned(), line, problem };
    let reader = open(path).map_err(|source| ExportError::File { path: path.to_owned(), source })?;
    let parse = &parse;
    thread::scope(|scope| {
        let (mut inputs, mut outputs): (Vec<SyncSender<Dealt>>, Vec<Receiver<Parsed<T>>>) = (vec![], vec![]);
        for _ in 0..threads.max(1) {
            let (input, chunks) = sync_channel(CHUNKS_AHEAD);
            let (done, output) = sync_channel(CHUNKS_AHEAD);
            inputs.push(input);
            outputs.push(output);
            scope.spawn(move || {
                // The loop ends when there are no more chunks, or when the receiver is gone.
                for chunk in chunks {
                    let parsed = chunk.and_then(|chunk: Chunk| parse_chunk(&chunk, parse));
                    if done.send(parsed).is_err() {
                        return;
                    }
                }
            });
        }
        scope.spawn(move || deal(reader, &inputs));
        for turn in (0..outputs.len()).cycle() {
            // Chunks are dealt in turn, so a thread with no more results has had the last chunk.
            let Ok(parsed) = outputs[turn].recv() else { return Ok(()) };
            take(parsed.map_err(|(line, problem)| at(line, problem))?)?;
        }
        Ok(())
    })
}

/// Distributes chunks to the threads in turn, until the end of the file or the first error.
fn deal(mut reader: Box<dyn BufRead + Send>, inputs: &[SyncSender<Dealt>]) {
    let mut next_line = 1;
    for input in inputs.iter().cycle() {
        let mut chunk = Chunk { first_line: next_line, lines: Vec::with_capacity(CHUNK_BYTES + 4096) };
        let mut failed = None;
        while chunk.lines.len() < CHUNK_BYTES {
            match line(&mut reader, &mut chunk.lines) {
                Ok(true) => next_line += 1,
                Ok(false) => break,
                Err(error) => {
                    failed = Some((next_line, error.to_string()));
                    break;
                }
            }
        }
        let is_last = chunk.lines.is_empty();
        let (chunk, is_last) = match failed {
            Some(failed) => (Err(failed), true),
            None => (Ok(chunk), is_last),
        };
        let is_over = is_last && chunk.is_ok();
        if is_over || input.send(chunk).is_err() || is_last {
            return;
        }
    }
}

fn parse_chunk<T>(chunk: &Chunk, parse: impl Fn(&str) -> Result<T, String>) -> Parsed<T> {
    let mut parsed = vec![];
    for (number, line) in (chunk.first_line..).zip(chunk.lines.split_inclusive(|byte| *byte == b'\n')) {
        let text = std::str::from_utf8(line).map_err(|error| (number, error.to_string()))?;
        parsed.push(parse(text.trim_end_matches('\n')).map_err(|problem| (number, problem))?);
    }
    Ok(parsed)
}

/// Returns the number of bytes at the beginning of an interrupted export that are complete, where it can be truncated and
/// continued. Calls `keep` with each complete line including its line break, or with each complete frame of a compressed
/// file. The first block for which `keep` returns false ends the valid part.
pub fn whole(path: &Path, is_compressed: bool, mut keep: impl FnMut(&str) -> bool) -> io::Result<u64> {
    let mut reader = Counting { inner: BufReader::with_capacity(CHUNK_BYTES, File::open(path)?), bytes: 0 };
    let mut text = vec![];
    loop {
        let bytes = reader.bytes;
        text.clear();
        let is_whole = match is_compressed {
            true if reader.fill_buf()?.is_empty() => false,
            true => zstd::stream::Decoder::with_buffer(&mut reader)?.single_frame().read_to_end(&mut text).is_ok(),
            false => line(&mut reader, &mut text).unwrap_or(false),
        };
        if !is_whole || !std::str::from_utf8(&text).is_ok_and(&mut keep) {
            return Ok(bytes);
        }
    }
}

/// A reader that counts the consumed bytes.
struct Counting<R> {
    inner: R,
    bytes: u64,
}

impl<R: BufRead> Read for Counting<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut buffered = self.fill_buf()?;
        let read = buffered.read(buf)?;
        self.consume(read);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Counting<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.bytes += amount as u64;
        self.inner.consume(amount);
    }
}

/// Returns a path with a suffix appended to its name.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write;

    use super::*;

    fn file(content: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        file
    }

    fn number(line: &str) -> Result<u64, String> {
        line.parse().map_err(|_| format!("{line:?} is not a number"))
    }

    fn lines(count: u64) -> String {
        (1..=count).map(|n| format!("{n}\n")).collect()
    }

    fn compressed(text: &str) -> Vec<u8> {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        lines.chunks(1000).flat_map(|lines| zstd::stream::encode_all(lines.concat().as_bytes(), 3).unwrap()).collect()
    }

    #[test]
    fn lines_are_taken_in_order_with_any_number_of_threads() {
        let text = lines(300_000);
        for content in [text.clone().into_bytes(), compressed(&text)] {
            let file = file(&content);
            for threads in [1, 2, 5] {
                let mut taken = vec![];
                each_page(file.path(), threads, number, |page| {
                    taken.extend(page);
                    Ok::<_, ExportError>(())
                })
                .unwrap();
                assert!(taken.iter().copied().eq(1..=300_000));
            }
        }
        each_page(file(b"").path(), 2, number, |_| Err(ExportError::Broken)).unwrap();
    }

    #[test]
    fn errors_name_their_line() {
        let mut broken = lines(100_000).replace("\n77777\n", "\nx\n");
        let error =
            |content: &[u8]| each_page(file(content).path(), 3, number, |_| Ok::<_, ExportError>(())).unwrap_err().to_string();
        assert!(error(broken.as_bytes()).ends_with("line 77777: \"x\" is not a number"));
        broken = lines(100_000);
        broken.pop();
        assert!(error(broken.as_bytes()).ends_with("line 100000: the file ends in the middle of a line"));
        let cut = compressed(&lines(5_000));
        assert!(error(&cut[..cut.len() - 1]).contains("line "));
        let mut damaged = lines(10).into_bytes();
        damaged[2] = 0xff;
        assert!(error(&damaged).contains("line 2: invalid utf-8"));
        let stopped = each_page(file(lines(500_000).as_bytes()).path(), 2, number, |_| Err(ExportError::Broken));
        assert!(matches!(stopped, Err(ExportError::Broken)));
    }

    /// Truncates the file at many places. The kept part is always complete.
    #[test]
    fn a_truncated_file_is_kept_up_to_its_last_complete_line_or_frame() {
        let text = lines(2_500);
        let frames = compressed(&text);
        for (content, is_compressed) in [(text.as_bytes(), false), (&frames[..], true)] {
            for cut in (0..=content.len()).step_by(37).chain([content.len()]) {
                let cut_off = file(&content[..cut]);
                let mut kept = String::new();
                let bytes = whole(cut_off.path(), is_compressed, |block| {
                    kept.push_str(block);
                    true
                });
                let bytes = usize::try_from(bytes.unwrap()).unwrap();
                assert!(bytes <= cut && text.starts_with(&kept) && (kept.is_empty() || kept.ends_with('\n')));
                assert_eq!(bytes == content.len(), kept == text);
                if is_compressed && bytes == 0 {
                    assert_eq!(kept, "", "no bytes are no frame");
                } else if is_compressed {
                    assert_eq!(zstd::stream::decode_all(&content[..bytes]).unwrap(), kept.as_bytes());
                } else {
                    assert_eq!(&content[..bytes], kept.as_bytes());
                }
            }
        }
    }
}
