//! SVG plots, with a white background so that they are readable on light and dark pages.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::table::thousands;

const FONT: (&str, u32) = ("sans-serif", 14);
const TITLE: (&str, u32) = ("sans-serif", 18);
/// Width of a plot, in pixels.
const WIDTH: u32 = 1000;
/// Width of the legend of lines, and of bars.
const LINES_LEGEND: u32 = 310;
const BARS_LEGEND: u32 = 90;
/// Colours that people with any colour vision can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// Lines over a common axis, which is logarithmic if each of its steps doubles.
pub struct Lines<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub is_doubling: bool,
    pub y: &'a str,
    pub series: Vec<(String, Vec<(f64, f64)>)>,
}

impl Lines<'_> {
    pub fn svg(&self) -> Result<String> {
        let place = |x: f64| if self.is_doubling { x.log2() } else { x };
        let points = || self.series.iter().flat_map(|(_, points)| points);
        let most_x = points().map(|(x, _)| place(*x)).fold(1.0, f64::max);
        let most_y = points().map(|(_, y)| *y).fold(1.0, f64::max) * 1.05;
        let mut svg = String::new();
        let root = SVGBackend::with_string(&mut svg, (WIDTH, 440)).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(self.title, TITLE)
            .margin(12)
            .margin_right(LINES_LEGEND)
            .x_label_area_size(48)
            .y_label_area_size(88)
            .build_cartesian_2d(0.0..most_x, 0.0..most_y)?;
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .x_labels(11)
            .x_label_formatter(&|x| thousands(if self.is_doubling { x.exp2() } else { *x }))
            .y_label_formatter(&|y| thousands(*y))
            .label_style(FONT)
            .bold_line_style(BLACK.mix(0.15))
            .light_line_style(TRANSPARENT)
            .draw()?;
        for ((_, points), colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            let dots = if points.len() < 20 { 3 } else { 0 };
            let points = points.iter().map(|(x, y)| (place(*x), *y));
            chart.draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(dots))?;
        }
        legend(&root, LINES_LEGEND, self.series.iter().map(|(name, _)| name.as_str()))?;
        root.present()?;
        drop(chart);
        drop(root);
        Ok(svg)
    }
}

/// Groups of horizontal bars that show times in milliseconds, one bar per series, on a logarithmic axis.
pub struct Bars<'a> {
    pub title: &'a str,
    pub series: &'a [&'a str],
    pub rows: Vec<(String, Vec<f64>)>,
}

impl Bars<'_> {
    pub fn svg(&self) -> Result<String> {
        let values = || self.rows.iter().flat_map(|(_, values)| values.iter().copied()).filter(|value| *value > 0.0);
        let least = 10_f64.powf(values().reduce(f64::min).unwrap_or(1.0).log10().floor());
        let most = values().fold(least, f64::max) * 2.5; // leaves space for the last figure
        let count = self.rows.len() as f64;
        let height = 110 + (self.rows.len() * self.series.len() * 18) as u32;
        let mut svg = String::new();
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(self.title, TITLE)
            .margin(12)
            .margin_right(BARS_LEGEND)
            .x_label_area_size(48)
            .y_label_area_size(400)
            .build_cartesian_2d((least..most).log_scale(), 0.0..count)?;
        chart
            .configure_mesh()
            .x_desc("milliseconds, logarithmic")
            .x_labels(4)
            .x_label_formatter(&|x| x.to_string())
            .disable_y_mesh()
            .disable_y_axis()
            .label_style(FONT)
            .bold_line_style(BLACK.mix(0.15))
            .light_line_style(TRANSPARENT)
            .draw()?;
        let at = |horizontal| FONT.into_text_style(&root).pos(Pos::new(horizontal, VPos::Center));
        let thickness = 0.8 / self.series.len() as f64;
        for (row, (label, values)) in self.rows.iter().enumerate() {
            let top = count - row as f64 - 0.1;
            let label = Text::new(label.clone(), (-8, 0), at(HPos::Right));
            chart.draw_series([EmptyElement::at((least, top - 0.4)) + label])?;
            for (n, (value, colour)) in values.iter().zip(COLOURS).enumerate() {
                let end = value.max(least);
                let (upper, lower) = (top - n as f64 * thickness, top - (n + 1) as f64 * thickness);
                chart.draw_series([Rectangle::new([(least, lower), (end, upper)], colour.filled())])?;
                let figure = Text::new(format!("{value:.1}"), (5, 0), at(HPos::Left));
                chart.draw_series([EmptyElement::at((end, (upper + lower) / 2.0)) + figure])?;
            }
        }
        legend(&root, BARS_LEGEND, self.series.iter().copied())?;
        root.present()?;
        drop(chart);
        drop(root);
        Ok(svg)
    }
}

/// Draws the series' names at the right edge, in a column of this width.
fn legend<'a>(root: &DrawingArea<SVGBackend<'_>, Shift>, width: u32, names: impl Iterator<Item = &'a str>) -> Result<()> {
    let left = (WIDTH - width + 14) as i32;
    let style = FONT.into_text_style(root).pos(Pos::new(HPos::Left, VPos::Center));
    for (n, (name, colour)) in names.zip(COLOURS.iter().cycle()).enumerate() {
        let y = 60 + 22 * n as i32;
        root.draw(&Rectangle::new([(left, y - 5), (left + 18, y + 5)], colour.filled()))?;
        root.draw(&Text::new(name, (left + 26, y), style.clone()))?;
    }
    Ok(())
}
