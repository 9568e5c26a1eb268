//! What a path says about state: `GET /v1/responses/{id}` reads what one organisation keeps.

/// Collections whose members stay with the organisation that made them.
const KEPT: [&str; 2] = ["/v1/responses/", "/v1/conversations/"];

/// Words below [`KEPT`] that name no member but work on a whole prompt.
const WORK: [&str; 2] = ["compact", "input_tokens"];

/// The id that a path names, as its organisation issued it.
pub fn carried(path: &str) -> Option<&str> {
    let id = KEPT.iter().find_map(|kept| path.strip_prefix(kept))?.split('/').next()?;
    (!id.is_empty() && !WORK.contains(&id)).then_some(id)
}

/// Whether answers of a path that is passed on as it is issue state: a compacted prompt does, and what was made
/// in the background.
pub fn issues(path: &str) -> bool {
    KEPT.iter().any(|kept| path.strip_suffix('/').unwrap_or(path).starts_with(kept.trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_where_one_stands() {
        for (path, expected) in [
            ("/v1/responses/resp_1", Some("resp_1")),
            ("/v1/responses/resp_1/input_items", Some("resp_1")),
            ("/v1/conversations/conv_1/items", Some("conv_1")),
            ("/v1/responses", None),
            ("/v1/responses/", None),
            ("/v1/responses/compact", None),
            ("/v1/files/file_1", None),
        ] {
            assert_eq!(carried(path), expected, "{path}");
        }
        assert!(
            issues("/v1/responses/compact") && issues("/v1/responses/resp_1") && issues("/v1/conversations")
        );
        assert!(!issues("/v1/files") && !issues("/v1/messages/count_tokens"));
    }
}
