//! Draws the README's pictures of a terminal: `docs/images/demo.svg`, in which the demo runs, and `docs/images/sandbox.svg` with
//! the first steps in a new sandbox.
//!
//! ```sh
//! cargo run --release --example picture               # builds the program, runs both, and draws them
//! cargo run --release --example picture -- PROGRAM    # runs a program that is already built
//! ```

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anstyle::{Color, RgbColor};
use anstyle_svg::{Palette, Term};
use anyhow::{Context, ensure};

const DIRECTORY: &str = "docs/images";
const DEMO: &str = "rewards-ledger demo --exit";
const SANDBOX: &str = "rewards-ledger serve --sandbox";
/// Commands after the login to the sandbox.
const STEPS: [&str; 2] = [
    r#"rewards-ledger call POST /api/v1/orders '{"product_id": 1, "denomination": 25, "quantity": 2}'"#,
    "rewards-ledger trigger order.delivered",
];
/// Address of a node by default. The sandbox of the picture runs on a free port.
const ADDRESS: &str = "http://127.0.0.1:8080";
/// Beginnings of the titles of the sections that the picture shows. The whole tour has twice as many lines.
const SECTIONS: [&str; 3] = ["An order that is delivered at once", "An order that is cancelled", "The wallet's statement"];

/// Width of the terminal. Longer lines end with an ellipsis, so that the text is large enough to read on a page.
const COLUMNS: usize = 102;

/// Height of the title bar, and the margin around the text, in pixels.
const BAR: u32 = 36;
const MARGIN: u32 = 10;

const BACKGROUND: &str = "#0d1117";
const BAR_BACKGROUND: &str = "#161b22";
const BAR_TEXT: &str = "#8b949e";
const FOREGROUND: Color = Color::Rgb(RgbColor(0xe6, 0xed, 0xf3));
/// The 16 colours of a terminal, bright enough to read on the dark background.
const COLOURS: Palette = Palette([
    RgbColor(0x48, 0x4f, 0x58),
    RgbColor(0xff, 0x7b, 0x72),
    RgbColor(0x56, 0xd3, 0x64),
    RgbColor(0xe3, 0xb3, 0x41),
    RgbColor(0x79, 0xc0, 0xff),
    RgbColor(0xd2, 0xa8, 0xff),
    RgbColor(0x76, 0xe3, 0xea),
    RgbColor(0xe6, 0xed, 0xf3),
    RgbColor(0x6e, 0x76, 0x81),
    RgbColor(0xff, 0xa1, 0x98),
    RgbColor(0x7e, 0xe7, 0x87),
    RgbColor(0xf2, 0xcc, 0x60),
    RgbColor(0xa5, 0xd6, 0xff),
    RgbColor(0xe2, 0xc5, 0xff),
    RgbColor(0xb3, 0xf0, 0xff),
    RgbColor(0xff, 0xff, 0xff),
]);

fn main() -> anyhow::Result<()> {
    let program = match std::env::args_os().nth(1) {
        Some(path) => PathBuf::from(path),
        None => build()?,
    };
    write("demo.svg", &draw(DEMO, &excerpt(&demo(&program)?)?)?)?;
    write("sandbox.svg", &draw(SANDBOX, &first_steps(&program)?)?)
}

fn write(file: &str, picture: &str) -> anyhow::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DIRECTORY).join(file);
    std::fs::write(&path, picture).with_context(|| format!("cannot write {}", path.display()))
}

/// Builds the program with the profile of this example, and returns its path.
fn build() -> anyhow::Result<PathBuf> {
    let profile: &[&str] = if cfg!(debug_assertions) { &[] } else { &["--release"] };
    let status = Command::new(env!("CARGO")).args(["build", "--bin", "rewards-ledger"]).args(profile).status()?;
    ensure!(status.success(), "the program does not build");
    let example = std::env::current_exe()?;
    let directory = example.parent().and_then(Path::parent).context("the example is not in a target directory")?;
    Ok(directory.join("rewards-ledger").with_extension(std::env::consts::EXE_EXTENSION))
}

/// Runs the demo with colours, and returns its output.
fn demo(program: &Path) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    command.args(["demo", "--exit"]).env("CLICOLOR_FORCE", "1").env_remove("NO_COLOR");
    output(&mut command)
}

/// A node, which is stopped with the value.
struct Sandbox(Child);

impl Drop for Sandbox {
    fn drop(&mut self) {
        _ = Command::new("kill").arg(self.0.id().to_string()).status();
        _ = self.0.wait();
    }
}

/// Starts a new sandbox, logs in to it as it suggests, and runs the [`STEPS`]. Returns the text of the terminal.
fn first_steps(program: &Path) -> anyhow::Result<String> {
    let directory = tempfile::tempdir()?;
    // The user of the embedded Postgres enters it.
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o711))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = program.canonicalize()?;
    let path = std::env::join_paths(program.parent().map(Path::to_path_buf).into_iter().chain(std::env::split_paths(&path)))?;
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(directory.path()).env_clear().env("PATH", &path);
        command.env("HOME", directory.path()).env("CLICOLOR_FORCE", "1");
        command
    };
    let mut serve = shell(&format!("exec {SANDBOX} --listen 127.0.0.1:0 --data-dir \"$PWD/ledger\""));
    let mut sandbox = Sandbox(serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?);
    let mut lines = BufReader::new(sandbox.0.stdout.take().context("the sandbox has no output")?).lines();
    let mut text = prompt(SANDBOX);
    let login = loop {
        let line = lines.next().context("the sandbox has ended")??;
        if line.starts_with("rewards-ledger login ") {
            break line;
        }
        writeln!(text, "{line}")?;
    };
    let secret = text.lines().find(|line| line.contains("API secret")).and_then(|line| line.split_whitespace().last());
    let secret = secret.context("the sandbox has printed no API secret")?.to_owned();
    // The terminal does not show the secret that it asks for.
    write!(text, "{login}\n\n{}API secret: \n", prompt(&login))?;
    text.push_str(&output(shell(&login).env("LEDGER_API_SECRET", secret))?);
    for step in STEPS {
        write!(text, "\n{}{}", prompt(step), output(&mut shell(step))?)?;
    }
    let url = login.split(' ').nth(3).context("the login names no URL")?;
    Ok(shortened(&text.replace(url, ADDRESS).replace(&*directory.path().to_string_lossy(), "~")))
}

/// Leaves only the beginning of each secret and key, so that nobody takes the picture for a leak.
fn shortened(text: &str) -> String {
    let parts = text.split_inclusive(|next: char| !next.is_ascii_hexdigit());
    parts
        .map(|part| {
            if part.len() > 32 {
                format!("{}…{}", &part[..8], part.trim_matches(|digit: char| digit.is_ascii_hexdigit()))
            } else {
                part.to_owned()
            }
        })
        .collect()
}

/// Runs a command, and returns its output.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn prompt(command: &str) -> String {
    format!("\u{1b}[32m$\u{1b}[0m {command}\n")
}

/// Returns the prompt and the [`SECTIONS`], with an ellipsis where sections are left out.
fn excerpt(output: &str) -> anyhow::Result<String> {
    const ELLIPSIS: &str = "\u{1b}[2m⋮\u{1b}[0m";
    let sections: Vec<&str> = output.trim().split("\n\n\u{1b}[34m").collect();
    let mut text = prompt(DEMO);
    let mut left_out = false;
    let mut shown = 0;
    for section in sections {
        if !SECTIONS.iter().any(|title| section.lines().next().is_some_and(|first| first.contains(title))) {
            left_out = true;
            continue;
        }
        if left_out {
            writeln!(text, "\n{ELLIPSIS}")?;
        }
        writeln!(text, "\n\u{1b}[34m{section}")?;
        left_out = false;
        shown += 1;
    }
    ensure!(shown == SECTIONS.len(), "the demo printed {shown} of the sections {SECTIONS:?}");
    Ok(text)
}

/// Draws a terminal window with the text, which a command has printed.
fn draw(command: &str, text: &str) -> anyhow::Result<String> {
    let lines: Vec<String> = text.trim_end().lines().map(shorten).collect();
    let terminal =
        Term::new().palette(COLOURS).min_width_px(0).fg_color(FOREGROUND).background(false).render_svg(&lines.join("\n"));
    // SVG knows no `opacity` for parts of a text, and the crate's 0.4 would be too faint to read.
    let terminal = terminal.replace("{ opacity: 0.4; }", "{ fill-opacity: 0.65; }");
    let (width, height) = (length(&terminal, "width")? + 2 * MARGIN, length(&terminal, "height")? + BAR + 2 * MARGIN);
    let body = terminal.replacen("<svg ", &format!("<svg x=\"{MARGIN}\" y=\"{}\" ", BAR + MARGIN), 1);
    let mut picture = String::new();
    let size = format!(r#"width="{width}" height="{height}""#);
    writeln!(picture, r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size} role="img">"#)?;
    writeln!(picture, "<title>The output of {command}</title>")?;
    writeln!(picture, r#"<rect {size} rx="8" fill="{BACKGROUND}"/>"#)?;
    writeln!(picture, r#"<path d="M0 {BAR}V8a8 8 0 0 1 8-8H{}a8 8 0 0 1 8 8V{BAR}z" fill="{BAR_BACKGROUND}"/>"#, width - 8)?;
    for (x, colour) in [(20, "#ff5f57"), (40, "#febc2e"), (60, "#28c840")] {
        writeln!(picture, r#"<circle cx="{x}" cy="{}" r="6" fill="{colour}"/>"#, BAR / 2)?;
    }
    let (middle, baseline) = (width / 2, BAR / 2 + 5);
    let font = r#"text-anchor="middle" font-family="sans-serif" font-size="13""#;
    writeln!(picture, r#"<text x="{middle}" y="{baseline}" {font} fill="{BAR_TEXT}">{command}</text>"#)?;
    // The crate ends some lines with spaces.
    let lines: Vec<&str> = body.lines().map(str::trim_end).collect();
    writeln!(picture, "{}\n</svg>", lines.join("\n"))?;
    Ok(picture)
}

/// Cuts a line to [`COLUMNS`] characters, without its escape sequences.
fn shorten(line: &str) -> String {
    let mut column = 0;
    let mut is_escape = false;
    let mut shortened = String::new();
    for character in line.chars() {
        is_escape |= character == '\u{1b}';
        if !is_escape {
            column += 1;
        }
        if is_escape || column < COLUMNS {
            shortened.push(character);
        } else if column == COLUMNS {
            shortened.push('…');
        }
        is_escape &= character != 'm';
    }
    shortened
}

/// Returns a length in pixels from an attribute of the outermost element.
fn length(svg: &str, attribute: &str) -> anyhow::Result<u32> {
    let (_, rest) = svg.split_once(&format!("{attribute}=\"")).with_context(|| format!("no {attribute}"))?;
    let (number, _) = rest.split_once("px").with_context(|| format!("no {attribute} in pixels"))?;
    number.parse().with_context(|| format!("{attribute}: {number}"))
}
