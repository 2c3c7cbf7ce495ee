/// One closing line of a trial: `FIGURE <name> <value> <unit> floor <floor> ok|short`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    line: String,
    ok: bool,
}

impl Figure {
    /// A count of faults, of which there may be none.
    pub fn none_of(name: &str, faults: usize, unit: &str) -> Self {
        Self::new(name, &faults.to_string(), unit, "0", faults == 0)
    }

    /// Something measured against something else in the same run.
    pub fn ratio(name: &str, value: f64, floor: f64) -> Self {
        Self::new(name, &format!("{value:.2}"), "x", &floor.to_string(), value >= floor)
    }

    /// Where a bound is a ceiling: the bound divided by what was measured.
    pub fn head_room(name: &str, measured: f64, ceiling: f64) -> Self {
        Self::ratio(name, ceiling / measured.max(f64::MIN_POSITIVE), 1.0)
    }

    fn new(name: &str, value: &str, unit: &str, floor: &str, ok: bool) -> Self {
        let verdict = if ok { "ok" } else { "short" };
        Self { line: format!("FIGURE {name} {value} {unit} floor {floor} {verdict}"), ok }
    }
}

/// Prints the figures; true when none is short.
pub fn close(figures: &[Figure]) -> bool {
    for figure in figures {
        println!("{}", figure.line);
    }
    figures.iter().all(|figure| figure.ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_says_whether_it_is_short() {
        let figure = Figure::none_of("torture_lost", 0, "messages");
        assert_eq!(figure.line, "FIGURE torture_lost 0 messages floor 0 ok");
        let short = Figure::none_of("torture_lost", 3, "messages");
        assert_eq!(short.line, "FIGURE torture_lost 3 messages floor 0 short");
        assert!(figure.ok && !short.ok);
    }
}
