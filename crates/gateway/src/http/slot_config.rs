mod rule;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use serde_json::json;
use tidegate_domain::{SlotConfig, SlotConfigName, SlotConfigPut};
use tidegate_edge::{ApiError, Audit, Principal, read_json};

use super::answer::{iso, json, put_durability};
use super::failure::{check_admin, check_writable, from_ledger};
use super::fields::Name;
use super::slots::unknown_config;
use super::times::iso_duration;
use super::{Gateway, query};

const NAME: Name = Name::new("name", "configName");

/// All are kept; so many are shown.
const VERSIONS_SHOWN_MAX: usize = 100;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConfigAnswer<'a> {
    config_name: &'a str,
    version: u32,
    max_per_window: u32,
    window_size: String,
    headroom_windows: u64,
    blackouts: Vec<PeriodAnswer>,
    business_hours: Option<HoursAnswer<'a>>,
    created_at: String,
}

#[derive(Debug, Serialize)]
struct PeriodAnswer {
    from: String,
    to: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct HoursAnswer<'a> {
    time_zone: &'a str,
    days: Vec<&'static str>,
    from: String,
    to: String,
}

#[derive(Debug, Serialize)]
struct VersionsAnswer<'a> {
    #[serde(flatten)]
    active: ConfigAnswer<'a>,
    /// The newest first.
    versions: Vec<ConfigAnswer<'a>>,
}

/// `GET /admin/rate-limit/config?name=default`: the active version and the former ones.
pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    request: Request,
) -> Result<Response, ApiError> {
    check_admin(&principal, "slot configurations are shown to")?;
    let mut fields = query::fields(request.uri());
    let name = fields.parsed_or(NAME, || gateway.slot_settings.default_config.clone(), SlotConfigName::new);
    fields.finish()?;
    let name = name.ok_or_else(|| ApiError::internal("a field without a value and without a fault"))?;
    let configs = gateway.slots.slot_config(name.clone()).await.map_err(from_ledger)?;
    let Some(active) = configs.first() else { return Err(unknown_config(&name)) };
    let versions = configs.iter().take(VERSIONS_SHOWN_MAX).map(ConfigAnswer::new).collect();
    json(StatusCode::OK, &VersionsAnswer { active: ConfigAnswer::new(active), versions })
}

/// `POST /admin/rate-limit/config`: makes a new version the active one. Nothing that was assigned changes.
pub async fn put(
    State(gateway): State<Arc<Gateway>>,
    principal: Principal,
    audit: Audit,
    request: Request,
) -> Result<Response, ApiError> {
    check_admin(&principal, "slots are configured by")?;
    check_writable(gateway.ledger.health())?;
    let object = read_json(request, &gateway.limits).await?;
    let (name, rule) = rule::read(&gateway.slot_settings, object, gateway.clock.now())?;
    match gateway.slots.put_slot_config(name.clone(), rule).await.map_err(from_ledger)? {
        SlotConfigPut::Stored(config) => {
            audit.record(
                "slot configuration set",
                format_args!("{}, version {}", config.name, config.version),
            );
            let mut response = json(StatusCode::OK, &ConfigAnswer::new(&config))?;
            put_durability(response.headers_mut(), gateway.ledger.durability());
            Ok(response)
        }
        SlotConfigPut::WindowSizeInUse { window_ms, until } => {
            let (size, until) = (iso_duration(window_ms), iso(until));
            let message = format!(
                "the windows of {name} are {size} long, and events hold slots in them until {until}: another \
                 windowSize would make those windows meaningless; keep {size}, wait until then, or use another \
                 configName"
            );
            Err(ApiError::new(StatusCode::CONFLICT, "window_size_in_use", message)
                .with("windowSize", json!(size))
                .with("until", json!(until)))
        }
        SlotConfigPut::Full => {
            let message = "as many slot configurations or versions of one are stored as the gateway may hold";
            Err(ApiError::new(StatusCode::INSUFFICIENT_STORAGE, "configs_full", message))
        }
    }
}

/// `POST /admin/rate-limit/cache/flush`: every look-up asks the ledger, so there is nothing to forget.
pub async fn flush(principal: Principal) -> Result<Response, ApiError> {
    check_admin(&principal, "caches are flushed by")?;
    json(StatusCode::OK, &json!({"flushed": true}))
}

impl<'a> ConfigAnswer<'a> {
    fn new(config: &'a SlotConfig) -> Self {
        let rule = &config.rule;
        let period = |period: &tidegate_domain::limits::slot::Period| PeriodAnswer {
            from: iso(period.from),
            to: iso(period.to),
        };
        let hours = rule.calendar.business_hours.as_ref().map(|hours| HoursAnswer {
            time_zone: hours.zone_name(),
            days: hours.days(),
            from: hours.from(),
            to: hours.to(),
        });
        Self {
            config_name: config.name.as_str(),
            version: config.version,
            max_per_window: rule.max_per_window,
            window_size: iso_duration(rule.window_ms),
            headroom_windows: rule.headroom_windows,
            blackouts: rule.calendar.blackouts.iter().map(period).collect(),
            business_hours: hours,
            created_at: iso(config.created_at),
        }
    }
}
