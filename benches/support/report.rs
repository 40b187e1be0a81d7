//! The report of a benchmark. Its tables are printed as soon as they are measured, and the same text becomes the
//! benchmark's section of `docs/benchmarks.md`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use chrono::Utc;
use embedded_postgres::Server;
use ledger_database::PgConnectOptions;
use sqlx::Connection;

use super::{Stolen, arguments, machine, section, table};

#[derive(Debug)]
pub struct Report {
    name: &'static str,
    markdown: String,
    /// File names and contents.
    plots: Vec<(String, String)>,
    stolen: Stolen,
}

impl Report {
    /// Starts the report of this benchmark, and the measurement of stolen processor time.
    pub fn start(name: &'static str) -> Report {
        Report { name, markdown: String::new(), plots: vec![], stolen: Stolen::since() }
    }

    /// Prints a paragraph, or a list, and keeps it.
    pub fn text(&mut self, text: &str) {
        println!("\n{text}");
        self.markdown += &format!("\n{text}\n");
    }

    /// Prints a table under a heading, and keeps it. The note says what the columns and targets mean; it may be empty.
    pub fn table(&mut self, title: &str, note: &str, header: &[&str], rows: &[Vec<String>]) {
        self.text(&format!("### {title}"));
        if !note.is_empty() {
            self.text(note);
        }
        self.text(&table::markdown(header, rows));
    }

    /// Keeps an SVG plot, which the section shows at this place.
    pub fn plot(&mut self, name: &str, title: &str, svg: String) {
        let file = format!("{}-{name}.svg", self.name);
        self.markdown += &format!("\n![{title}](benchmarks/{file})\n");
        self.plots.push((file, svg));
    }

    /// Prints the machine and, after a run without arguments, writes the section and its plots. A run with arguments
    /// measures less, so it is only printed.
    pub async fn end(self, server: &Server) -> Result<()> {
        let postgres = postgres(server).await?;
        self.finish(&format!("- Postgres: {postgres}\n"))
    }

    /// Like [`Report::end`], for a benchmark that needs no database.
    pub fn end_without_database(self) -> Result<()> {
        self.finish("")
    }

    fn finish(self, postgres: &str) -> Result<()> {
        let setup = format!(
            "- Date: {}\n- Command: `cargo bench --bench {}`\n- Machine: {}\n{postgres}- {}",
            Utc::now().format("%Y-%m-%d"),
            self.name,
            machine(),
            self.stolen,
        );
        println!("\n{setup}");
        if !arguments().is_empty() {
            println!("\ndocs/benchmarks.md is unchanged, because the run has arguments: {}", arguments().join(" "));
            return Ok(());
        }
        let path = document();
        let docs = path.parent().context("a directory")?;
        let document = std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        let content = format!("{setup}\n{}", self.markdown);
        write(&path, &section::replace(&document, self.name, &content).map_err(anyhow::Error::msg)?)?;
        std::fs::create_dir_all(docs.join("benchmarks"))?;
        for (file, svg) in &self.plots {
            write(&docs.join("benchmarks").join(file), svg)?;
        }
        println!("\ndocs/benchmarks.md has the new section `{}`.", self.name);
        Ok(())
    }
}

/// Returns the path of `docs/benchmarks.md`.
pub fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/benchmarks.md")
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}

/// Returns the version and the durability of the server that was measured.
async fn postgres(server: &Server) -> Result<String> {
    let options: PgConnectOptions = server.url_of("postgres").parse()?;
    let mut connection = options.connect().await?;
    let settings: String = sqlx::query_scalar(
        "SELECT format('%s, fsync %s, synchronous_commit %s, shared_buffers %s', split_part(current_setting('server_version'), ' ', 1),
            current_setting('fsync'), current_setting('synchronous_commit'), current_setting('shared_buffers'))",
    )
    .fetch_one(&mut connection)
    .await?;
    connection.close().await?;
    Ok(settings)
}
