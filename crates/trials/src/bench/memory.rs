use anyhow::Context;

/// Resident memory of this process.
pub fn resident_bytes() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS in /proc/self/status")?;
    let kib: u64 = line.split_whitespace().nth(1).context("no number in VmRSS")?.parse()?;
    Ok(kib * 1024)
}
