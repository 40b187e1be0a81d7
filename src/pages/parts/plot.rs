//! Plots, drawn as SVG on the server. A table with the same figures stands beside each one.

use chrono::{DateTime, Utc};
use maud::{Markup, PreEscaped, html};
use plotters::backend::SVGBackend;
use plotters::prelude::*;

use super::values::time;

/// Colours of the plot. The style sheet replaces them by those of the light or dark design, by attribute.
const INK: RGBColor = RGBColor(1, 1, 1);
const GRID: RGBColor = RGBColor(2, 2, 2);
const SERIES: [RGBColor; 3] = [RGBColor(3, 3, 3), RGBColor(4, 4, 4), RGBColor(5, 5, 5)];
const SIZE: (u32, u32) = (720, 220);

/// A series of figures by day or by another label.
#[derive(Debug)]
pub struct Series<'a> {
    pub name: &'a str,
    pub values: Vec<f64>,
    /// Query that narrows the list of a label to the entries that the series counts, such as `outcome=failed`. It is empty if the
    /// series counts the whole list, and `None` if its figures count no entries, such as amounts and durations.
    pub counted: Option<&'static str>,
}

impl Series<'_> {
    /// Renders the figure of a label in the table. A number of entries leads to them.
    fn figure(&self, index: usize, label: &Label) -> Markup {
        let value = self.values.get(index).copied().unwrap_or_default();
        let target = self.counted.zip(label.target.as_deref()).filter(|_| value != 0.0);
        html! {
            @match target {
                Some(("", list)) => a href=(list) { (value) },
                Some((filter, list)) => a href={ (list) @if list.contains('?') { "&" } @else { "?" } (filter) } { (value) },
                None => (value),
            }
        }
    }
}

/// A label below the bars, such as a day, and the address of what its figures count.
#[derive(Debug)]
pub struct Label {
    pub text: String,
    /// Time that the text names. The table shows it in the viewer's time zone.
    pub at: Option<DateTime<Utc>>,
    pub target: Option<String>,
}

impl Label {
    /// A day such as `2026-01-31`. The label leaves out the year, which is the same for nearly all days of a plot.
    pub fn of_day(day: &str, target: Option<String>) -> Label {
        Label { text: day.split_once('-').map_or(day, |(_, rest)| rest).to_owned(), at: None, target }
    }

    /// A minute. The label leaves out the day.
    pub fn of_minute(at: DateTime<Utc>, target: Option<String>) -> Label {
        Label { text: at.format("%H:%M").to_string(), at: Some(at), target }
    }

    fn render(&self) -> Markup {
        let text = self.at.map_or_else(|| html! { (self.text) }, time);
        html! { @match &self.target { Some(target) => a href=(target) { (text) }, None => (text) } }
    }
}

/// Bars side by side for each day, with a table of the same figures. `unit` is the name of the values.
pub fn bars(title: &str, unit: &str, days: &[Label], series: &[Series<'_>]) -> Markup {
    bars_by(title, "Day", unit, days, series)
}

/// Bars side by side for each label, with a table of the same figures. `kind` names the labels, and `unit` the values. The labels
/// of days and minutes are in UTC, which the axis says.
pub fn bars_by(title: &str, kind: &str, unit: &str, labels: &[Label], series: &[Series<'_>]) -> Markup {
    let axis = if matches!(kind, "Day" | "Minute") { format!("{kind} (UTC)") } else { String::new() };
    html! {
        figure.plot {
            figcaption { (title) }
            @match draw(&axis, unit, labels, series) {
                Ok(svg) => div.drawing role="img" aria-label=(title) { (PreEscaped(svg)) },
                Err(error) => p.quiet { "The plot cannot be drawn: " (error) },
            }
            p.legend { @for (index, one) in series.iter().enumerate() { span class={ "series s" (index) } { (one.name) } } }
            details {
                summary { "Figures" }
                table {
                    caption.unseen { (title) }
                    thead { tr { th scope="col" { (kind) } @for one in series { th.number scope="col" { (one.name) } } } }
                    tbody {
                        @for (index, label) in labels.iter().enumerate() {
                            tr { th scope="row" { (label.render()) } @for one in series { td.number data-name=(one.name) { (one.figure(index, label)) } } }
                        }
                    }
                }
            }
        }
    }
}

/// Names the currencies that have no plot. `place` says where their figures are.
pub fn left_out(currencies: &[&str], place: &str) -> Markup {
    let more = if currencies.len() == 1 { "currency" } else { "currencies" };
    html! {
        @if !currencies.is_empty() {
            p.quiet { "And " (currencies.len()) " more " (more) " without a plot: " (currencies.join(", ")) ". " (place) }
        }
    }
}

/// Draws the bars. The text of the SVG has only figures, labels, the unit, and the name of the axis below, which may be empty.
fn draw(axis: &str, unit: &str, labels: &[Label], series: &[Series<'_>]) -> Result<String, String> {
    let mut svg = String::new();
    let most = series.iter().flat_map(|one| &one.values).copied().fold(0.0, f64::max).max(1.0);
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let count = labels.len().max(1);
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .x_label_area_size(if axis.is_empty() { 24 } else { 40 })
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..count as f64, 0.0..most * 1.1)
            .map_err(|error| error.to_string())?;
        let style = TextStyle::from(("sans-serif", 12).into_font()).color(&INK);
        let label = |at: &f64| {
            labels.get(at.floor() as usize).filter(|_| at.fract() < 0.01).map(|label| label.text.clone()).unwrap_or_default()
        };
        // Counts have no decimals: 15, not 15.0.
        let figure = |value: &f64| ((value * 1000.0).round() / 1000.0).to_string();
        {
            let mut mesh = chart.configure_mesh();
            if !axis.is_empty() {
                mesh.x_desc(axis);
            }
            mesh.disable_x_mesh()
                .light_line_style(TRANSPARENT)
                .bold_line_style(GRID)
                .axis_style(GRID)
                .label_style(style)
                .x_labels(count.min(8))
                .x_label_formatter(&label)
                .y_labels(4)
                .y_label_formatter(&figure)
                .y_desc(unit)
                .draw()
                .map_err(|error| error.to_string())?;
        }
        let width = 0.8 / series.len().max(1) as f64;
        for (index, one) in series.iter().enumerate() {
            let colour = SERIES[index % SERIES.len()].filled();
            let bars = one.values.iter().enumerate().map(|(at, value)| {
                let left = at as f64 + 0.1 + width * index as f64;
                Rectangle::new([(left, 0.0), (left + width * 0.92, *value)], colour)
            });
            chart.draw_series(bars).map_err(|error| error.to_string())?;
        }
        area.present().map_err(|error| error.to_string())?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_its_figures_as_a_table() {
        let labels = [Label::of_day("2026-11-01", None), Label::of_day("2026-11-02", Some("/orders?from=2026-11-02".to_owned()))];
        let orders = Series { name: "Orders", values: vec![3.0, 0.0], counted: None };
        let markup = bars("Orders by day", "orders", &labels, &[orders]).0;
        let figure = "<td class=\"number\" data-name=\"Orders\">3</td>";
        assert!(markup.contains("<svg") && markup.contains(figure), "{markup}");
        assert!(!markup.contains("style="), "{markup}");
        assert!(markup.contains("<a href=\"/orders?from=2026-11-02\">11-02</a>"), "{markup}");
        assert!(markup.contains(">\n3\n<") || markup.contains(">3<"), "the axis counts in whole orders: {markup}");
    }

    #[test]
    fn a_number_of_entries_leads_to_the_entries_of_its_series() {
        let figure = |counted: Option<&'static str>, value: f64, target: Option<&str>| {
            let label = Label { text: String::new(), at: None, target: target.map(ToOwned::to_owned) };
            Series { name: "Failed", values: vec![value], counted }.figure(0, &label).0
        };
        let day = Some("/attempts?from=a");
        assert_eq!(figure(Some(""), 3.0, day), "<a href=\"/attempts?from=a\">3</a>");
        assert_eq!(figure(Some("outcome=failed"), 3.0, day), "<a href=\"/attempts?from=a&amp;outcome=failed\">3</a>");
        assert_eq!(figure(Some("outcome=failed"), 3.0, Some("/attempts")), "<a href=\"/attempts?outcome=failed\">3</a>");
        for alone in [figure(None, 3.0, day), figure(Some(""), 3.0, None)] {
            assert_eq!(alone, "3");
        }
        assert_eq!(figure(Some(""), 0.0, day), "0");
    }

    #[test]
    fn the_axis_names_utc_and_the_table_has_times_for_the_zone_of_the_viewer() {
        let labels = [Label::of_minute(DateTime::<Utc>::UNIX_EPOCH, Some("/orders".to_owned()))];
        let orders = Series { name: "Orders", values: vec![3.0], counted: None };
        let markup = bars_by("Orders by minute", "Minute", "orders", &labels, &[orders]).0;
        let drawn = markup.split("</svg>").next().unwrap_or_default();
        assert!(drawn.contains("Minute (UTC)") && drawn.contains("00:00"), "{markup}");
        let linked = "<a href=\"/orders\"><time datetime=\"1970-01-01T00:00:00.000Z\" title=\"1970-01-01 00:00:00 UTC\">";
        assert!(markup.contains(linked), "{markup}");
        assert!(!bars_by("Orders by product", "Product", "orders", &[], &[]).0.contains("UTC"));
    }

    #[test]
    fn currencies_without_a_plot_are_named() {
        assert_eq!(left_out(&[], "Below.").0, "");
        assert!(left_out(&["EUR"], "Below.").0.contains("And 1 more currency without a plot: EUR. Below."));
        assert!(left_out(&["EUR", "USD"], "").0.contains("And 2 more currencies without a plot: EUR, USD. "));
    }

    #[test]
    fn a_plot_without_figures_is_drawn() {
        assert!(bars("Orders by day", "orders", &[], &[]).0.contains("<svg"));
    }
}
