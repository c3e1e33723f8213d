//! What a Job asks for that is not supported yet. Such a Job waits and says so: nothing is silently ignored.

use sluice_api::{annotations, labels};

use crate::view::JobView;

/// Names of everything that the Job asks for and that is not supported yet, in a fixed order.
pub fn unsupported(job: &JobView) -> Vec<String> {
    let mut names = Vec::new();
    let mut name = |asked: bool, key: &str| {
        if asked {
            names.push(key.to_owned());
        }
    };
    name(is_true(job, annotations::ELASTIC_JOB), annotations::ELASTIC_JOB);
    let prebuilt = has(job, annotations::PREBUILT_WORKLOAD_NAME) || job.label(labels::PREBUILT_WORKLOAD_NAME).is_some();
    name(prebuilt, labels::PREBUILT_WORKLOAD_NAME);
    name(has(job, annotations::PRIORITY_BOOST), annotations::PRIORITY_BOOST);
    let template = &job.spec.template;
    for key in annotations::TOPOLOGY_REQUESTS {
        name(template.annotation(key).is_some(), key);
    }
    let provisioning = job.metadata.annotations.iter().flatten().map(|(key, _)| key);
    for key in provisioning.filter(|key| key.starts_with(annotations::PROVISIONING_REQUEST_PREFIX)) {
        name(true, key);
    }
    name(template.spec.has_resource_claims, "spec.template.spec.resourceClaims");
    names
}

fn has(job: &JobView, annotation: &str) -> bool {
    job.annotation(annotation).is_some()
}

fn is_true(job: &JobView, annotation: &str) -> bool {
    job.annotation(annotation) == Some("true")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture;

    #[test]
    fn an_ordinary_job_asks_for_nothing_unsupported() {
        assert_eq!(
            unsupported(&fixture::view(&fixture::waiting_job())),
            Vec::<String>::new()
        );
    }

    #[test]
    fn everything_unsupported_is_named() {
        let mut job = fixture::waiting_job();
        job["metadata"]["annotations"] = json!({
            "kueue.x-k8s.io/elastic-job": "true",
            "kueue.x-k8s.io/priority-boost": "5",
            "provreq.kueue.x-k8s.io/ValidUntilSeconds": "0"
        });
        job["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("mine");
        let template = &mut job["spec"]["template"];
        template["metadata"]["annotations"] = json!({"kueue.x-k8s.io/podset-required-topology": "rack"});
        template["spec"]["resourceClaims"] = json!([{"name": "gpu"}]);
        assert_eq!(
            unsupported(&fixture::view(&job)),
            [
                "kueue.x-k8s.io/elastic-job",
                "kueue.x-k8s.io/prebuilt-workload-name",
                "kueue.x-k8s.io/priority-boost",
                "kueue.x-k8s.io/podset-required-topology",
                "provreq.kueue.x-k8s.io/ValidUntilSeconds",
                "spec.template.spec.resourceClaims",
            ]
        );
    }

    #[test]
    fn what_is_acted_on_is_not_named() {
        let mut job = fixture::waiting_job();
        job["metadata"]["annotations"] = json!({
            "kueue.x-k8s.io/job-min-parallelism": "1",
            "kueue.x-k8s.io/job-completions-equal-parallelism": "true",
            "kueue.x-k8s.io/admission-gated-by": "example.com/gate"
        });
        job["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("60");
        assert_eq!(unsupported(&fixture::view(&job)), Vec::<String>::new());
    }

    #[test]
    fn switches_that_are_off_ask_for_nothing() {
        let mut job = fixture::waiting_job();
        job["metadata"]["annotations"] = json!({"kueue.x-k8s.io/elastic-job": "false"});
        assert_eq!(unsupported(&fixture::view(&job)), Vec::<String>::new());
    }

    #[test]
    fn a_prebuilt_workload_named_by_annotation_is_named_once() {
        let mut job = fixture::waiting_job();
        job["metadata"]["annotations"] = json!({"kueue.x-k8s.io/prebuilt-workload-name": "mine"});
        job["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("mine");
        assert_eq!(
            unsupported(&fixture::view(&job)),
            ["kueue.x-k8s.io/prebuilt-workload-name"]
        );
    }
}
