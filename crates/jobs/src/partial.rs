//! Partial admission: a Job that says how few pods it can live with, and what runs when it gets fewer.

use sluice_api::annotations;
use thiserror::Error;

use crate::requests::pods_count;
use crate::view::JobView;

const INDEXED: &str = "Indexed";

/// An annotation about partial admission that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PartialError {
    /// The least parallelism is no positive number.
    #[error(
        "the annotation {} is {value:?}: it must be a whole number of 1 or more",
        annotations::JOB_MIN_PARALLELISM
    )]
    MinParallelism {
        /// What it says.
        value: String,
    },
    /// The switch is neither on nor off.
    #[error(
        "the annotation {} is {value:?}: it must be true or false",
        annotations::JOB_COMPLETIONS_EQUAL_PARALLELISM
    )]
    Switch {
        /// What it says.
        value: String,
    },
    /// Completions cannot follow the parallelism.
    #[error(
        "the annotation {} is for Jobs with completionMode Indexed whose completions equal their parallelism",
        annotations::JOB_COMPLETIONS_EQUAL_PARALLELISM
    )]
    Completions,
}

/// The fewest pods that a Job may be admitted with, if it may be admitted with fewer than it asks for.
///
/// # Errors
/// When the Job says something that makes no sense.
pub fn min_count(job: &JobView) -> Result<Option<i64>, PartialError> {
    let Some(text) = job.annotation(annotations::JOB_MIN_PARALLELISM) else {
        return Ok(None);
    };
    let least = match text.parse::<i32>() {
        Ok(number) if number > 0 => i64::from(number),
        _ => return Err(PartialError::MinParallelism { value: text.to_owned() }),
    };
    if completions_follow(job)? && !has_equal_completions(job) {
        return Err(PartialError::Completions);
    }
    Ok(Some(least).filter(|least| *least < pods_count(&job.spec)))
}

/// Whether completions are lowered together with the parallelism.
///
/// # Errors
/// When the switch is neither on nor off, as Go reads it.
pub fn completions_follow(job: &JobView) -> Result<bool, PartialError> {
    match job.annotation(annotations::JOB_COMPLETIONS_EQUAL_PARALLELISM) {
        None | Some("false" | "False" | "FALSE" | "f" | "F" | "0") => Ok(false),
        Some("true" | "True" | "TRUE" | "t" | "T" | "1") => Ok(true),
        Some(other) => Err(PartialError::Switch {
            value: other.to_owned(),
        }),
    }
}

fn has_equal_completions(job: &JobView) -> bool {
    let spec = &job.spec;
    spec.completion_mode.as_deref() == Some(INDEXED) && spec.completions == Some(spec.parallelism.unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture;

    fn least(min: &str, switch: Option<&str>, mode: &str, completions: i64) -> Result<Option<i64>, PartialError> {
        let mut job = fixture::waiting_job();
        job["metadata"]["annotations"] = json!({annotations::JOB_MIN_PARALLELISM: min});
        if let Some(switch) = switch {
            job["metadata"]["annotations"][annotations::JOB_COMPLETIONS_EQUAL_PARALLELISM] = json!(switch);
        }
        job["spec"]["completionMode"] = json!(mode);
        job["spec"]["completions"] = json!(completions);
        min_count(&fixture::view(&job))
    }

    #[test]
    fn a_job_that_says_nothing_is_admitted_whole_or_not_at_all() {
        assert_eq!(min_count(&fixture::view(&fixture::waiting_job())), Ok(None));
    }

    #[test]
    fn the_least_parallelism_counts_only_below_the_pods_asked_for() {
        assert_eq!(least("1", None, "NonIndexed", 3), Ok(Some(1)));
        assert_eq!(least("2", None, "NonIndexed", 9), Ok(Some(2)));
        assert_eq!(least("3", None, "NonIndexed", 9), Ok(None));
        assert_eq!(least("2", None, "NonIndexed", 2), Ok(None));
    }

    #[test]
    fn a_least_parallelism_that_is_no_positive_number_is_named() {
        for text in ["0", "-1", "", "half", "2.0", "2147483648"] {
            let error = least(text, None, "NonIndexed", 3).unwrap_err().to_string();
            assert!(error.contains("job-min-parallelism") && error.contains(text), "{error}");
        }
    }

    #[test]
    fn completions_follow_only_where_the_api_server_lets_them() {
        assert_eq!(least("1", Some("true"), "Indexed", 3), Ok(Some(1)));
        assert_eq!(least("1", Some("false"), "NonIndexed", 9), Ok(Some(1)));
        assert_eq!(
            least("1", Some("true"), "NonIndexed", 3),
            Err(PartialError::Completions)
        );
        assert_eq!(least("1", Some("true"), "Indexed", 4), Err(PartialError::Completions));
        assert!(matches!(
            least("1", Some("yes"), "Indexed", 3),
            Err(PartialError::Switch { .. })
        ));
    }
}
