//! Admission gates: controllers that must let a Job go before it may be considered.

use sluice_api::annotations;

use crate::view::JobView;

/// The names of the controllers that hold a Job back, as written, without empty entries.
pub fn admission_gates(job: &JobView) -> Vec<&str> {
    let text = job.annotation(annotations::ADMISSION_GATED_BY).unwrap_or_default();
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture;

    #[test]
    fn each_name_in_the_list_holds_the_job_back_and_blanks_do_not() {
        let gates = |text: &str| {
            let mut job = fixture::waiting_job();
            job["metadata"]["annotations"] = json!({annotations::ADMISSION_GATED_BY: text});
            let view = fixture::view(&job);
            admission_gates(&view)
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            gates("example.com/a, example.com/b"),
            ["example.com/a", "example.com/b"]
        );
        assert_eq!(gates("example.com/a"), ["example.com/a"]);
        assert!(gates(" ").is_empty());
        assert!(gates(",").is_empty());
        assert!(admission_gates(&fixture::view(&fixture::waiting_job())).is_empty());
    }
}
