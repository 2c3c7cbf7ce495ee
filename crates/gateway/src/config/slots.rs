use tidegate_domain::SlotConfigName;

use super::reader::Reader;

#[derive(Debug, Clone)]
pub struct SlotSettings {
    /// The configuration of events that name none.
    pub default_config: SlotConfigName,
    pub batch_max: usize,
    /// For configurations that don't say it themselves.
    pub headroom_windows: u64,
}

impl SlotSettings {
    /// At most what a configuration may ask for by itself.
    pub const HEADROOM_WINDOWS_MAX: u32 = 1_000_000_000;

    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let name = reader.text("slots.default_config");
        let default_config = SlotConfigName::new(name);
        if let Err(wrong) = &default_config {
            reader.problem_with_fix(
                "slots.default_config",
                format!("{name:?} {wrong}"),
                "such as \"default\"",
            );
        }
        let batch_max = reader.size("slots.batch_max", 1..=100_000);
        let headroom_windows = reader.number("slots.headroom_windows", 0..=Self::HEADROOM_WINDOWS_MAX.into());
        Some(Self { default_config: default_config.ok()?, batch_max, headroom_windows })
    }
}
