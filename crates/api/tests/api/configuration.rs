//! The configuration file: what is read, what is refused and on which line.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use sluice_api::configuration::{
    AdmissionFairSharing, Configuration, FairSharing, PreemptionStrategy, RequeuingStrategy, RequeuingTimestamp,
    ResourceWeight, WaitForPodsReady, parse,
};

const HEAD: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
const OLD_HEAD: &str = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n";

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// What is said of a file that begins with the two lines of `HEAD`.
fn said(rest: &str) -> Vec<String> {
    said_of(&format!("{HEAD}{rest}"))
}

fn said_of(text: &str) -> Vec<String> {
    match parse(text) {
        Ok(read) => panic!("{text:?} was accepted as {read:?}"),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn an_empty_file_sets_nothing() {
    for text in ["", "\n", "# nothing\n", "---\n", HEAD, &format!("{HEAD}sluice: {{}}\n")] {
        assert_eq!(parse(text), Ok(Configuration::default()), "{text:?}");
    }
}

#[test]
fn a_file_that_sets_everything_is_read() {
    let text = "\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
waitForPodsReady:
  timeout: 1h30m
  recoveryTimeout: 3m
  blockAdmission: true
  requeuingStrategy:
    timestamp: Creation
    backoffLimitCount: 5
    backoffBaseSeconds: 10
    backoffMaxSeconds: 0x258
fairSharing:
  preemptionStrategies: [LessThanInitialShare]
admissionFairSharing:
  usageHalfLifeTime: 168h
  usageSamplingInterval: 90s
  resourceWeights: {cpu: 2, memory: 0, example.com/gpu: 0.1}
";
    let wanted = Configuration {
        wait_for_pods_ready: Some(WaitForPodsReady {
            timeout: seconds(5400),
            recovery_timeout: Some(seconds(180)),
            block_admission: true,
            requeuing_strategy: RequeuingStrategy {
                timestamp: RequeuingTimestamp::Creation,
                backoff_limit_count: Some(5),
                backoff_base: seconds(10),
                backoff_max: seconds(600),
            },
        }),
        fair_sharing: Some(FairSharing {
            first: PreemptionStrategy::LessThanInitialShare,
            second: None,
        }),
        admission_fair_sharing: Some(AdmissionFairSharing {
            usage_half_life_time: seconds(604_800),
            usage_sampling_interval: seconds(90),
            resource_weights: BTreeMap::from([
                ("cpu".to_owned(), ResourceWeight(2_000_000_000)),
                ("memory".to_owned(), ResourceWeight(0)),
                ("example.com/gpu".to_owned(), ResourceWeight(100_000_000)),
            ]),
        }),
    };
    assert_eq!(parse(text), Ok(wanted));
}

#[test]
fn json_is_yaml() {
    let text = r#"{"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
        "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}}"#;
    assert_eq!(parse(text).unwrap().fair_sharing, Some(FairSharing::default()));
}

#[test]
fn a_block_that_is_there_has_defaults() {
    let read = parse(&format!("{HEAD}waitForPodsReady: {{}}\nadmissionFairSharing: {{}}\n")).unwrap();
    let waiting = read.wait_for_pods_ready.unwrap();
    assert_eq!(waiting.timeout, seconds(1800));
    assert_eq!(waiting.recovery_timeout, Some(seconds(1800)));
    assert!(!waiting.block_admission);
    assert_eq!(
        waiting.requeuing_strategy,
        RequeuingStrategy {
            timestamp: RequeuingTimestamp::Eviction,
            backoff_limit_count: None,
            backoff_base: seconds(60),
            backoff_max: seconds(3600),
        }
    );
    let fair = read.admission_fair_sharing.unwrap();
    assert_eq!(
        (fair.usage_half_life_time, fair.usage_sampling_interval),
        (seconds(3600), seconds(300))
    );
    assert!(fair.resource_weights.is_empty());
    assert_eq!(read.fair_sharing, None);
}

#[test]
fn a_recovery_timeout_follows_the_timeout_and_zero_turns_it_off() {
    let recovery = |text: &str| {
        let read = parse(&format!("{HEAD}waitForPodsReady: {{timeout: 7m{text}}}\n")).unwrap();
        read.wait_for_pods_ready.unwrap().recovery_timeout
    };
    assert_eq!(recovery(""), Some(seconds(420)));
    assert_eq!(recovery(", recoveryTimeout: 0s"), None);
    assert_eq!(recovery(", recoveryTimeout: null"), Some(seconds(420)));
}

#[test]
fn the_old_version_has_switches_and_other_defaults() {
    let on = parse(&format!(
        "{OLD_HEAD}waitForPodsReady: {{enable: true}}\nfairSharing: {{enable: true}}\n"
    ))
    .unwrap();
    let waiting = on.wait_for_pods_ready.unwrap();
    assert_eq!((waiting.timeout, waiting.recovery_timeout), (seconds(300), None));
    assert!(waiting.block_admission);
    assert_eq!(on.fair_sharing, Some(FairSharing::default()));
    for off in [
        "waitForPodsReady: {timeout: 1m}\nfairSharing: {preemptionStrategies: [LessThanInitialShare]}\n",
        "waitForPodsReady: {enable: false}\nfairSharing: {enable: false}\n",
    ] {
        assert_eq!(
            parse(&format!("{OLD_HEAD}{off}")),
            Ok(Configuration::default()),
            "{off}"
        );
    }
    // What is off is read all the same.
    assert_eq!(
        said_of(&format!(
            "{OLD_HEAD}waitForPodsReady:\n  enable: false\n  timeout: soon\n"
        )),
        ["line 5: waitForPodsReady.timeout must be a duration longer than 0s, such as 5m or 1h30m, not \"soon\""]
    );
    assert_eq!(
        said("waitForPodsReady: {enable: true}\nfairSharing: {enable: true}\n"),
        [
            "line 3: waitForPodsReady.enable is known in config.kueue.x-k8s.io/v1beta1 alone",
            "line 4: fairSharing.enable is known in config.kueue.x-k8s.io/v1beta1 alone",
            "line 4: fairSharing.preemptionStrategies is missing",
        ]
    );
    assert_eq!(
        said_of(&format!("{OLD_HEAD}tls: {{}}\n")),
        ["line 3: tls is known in config.kueue.x-k8s.io/v1beta2 alone"]
    );
}

#[test]
fn everything_that_is_wrong_is_reported_together_in_the_order_of_lines() {
    let text = "\
waitForPodsReady:
  timeoot: 5m
  recoveryTimeout: -3m
  requeuingStrategy: {timestamp: Never, backoffLimitCount: -1}
fairSharing:
  preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]
admissionFairSharing:
  resourceWeights: {cpu: heavy}
multiKueue:
  gcInterval: 1m
kind: Config
sluice:
  backfill: true
";
    assert_eq!(
        said_of(text),
        [
            "line 1: apiVersion is missing",
            "line 2: waitForPodsReady.timeoot is not known; did you mean timeout?",
            "line 3: waitForPodsReady.recoveryTimeout must be a duration such as 5m or 1h30m, not \"-3m\"",
            "line 4: waitForPodsReady.requeuingStrategy.timestamp must be Eviction or Creation, not \"Never\"",
            "line 4: waitForPodsReady.requeuingStrategy.backoffLimitCount must be a whole number from 0 to 2147483647, \
             not the number -1",
            "line 6: fairSharing.preemptionStrategies must be [LessThanOrEqualToFinalShare], [LessThanInitialShare] or \
             [LessThanOrEqualToFinalShare, LessThanInitialShare], not [LessThanInitialShare, LessThanOrEqualToFinalShare]",
            "line 8: admissionFairSharing.resourceWeights.cpu must be a number from 0 to 1000000000, such as 0.5, \
             not \"heavy\"",
            "line 9: multiKueue is not acted on: Sluice has nothing of this kind yet",
            "line 11: kind must be Configuration, not \"Config\"",
            "line 13: sluice.backfill is not known",
        ]
    );
}

#[test]
fn each_kind_of_wrong_value_is_named_with_what_is_wanted() {
    for (rest, wanted) in [
        (
            "waitForPodsReady: on\n",
            "line 3: waitForPodsReady must be a block of fields, not \"on\"",
        ),
        (
            "waitForPodsReady:\n",
            "line 3: waitForPodsReady has no value: write {} for the defaults, or leave it out",
        ),
        (
            "fairSharing: ~\n",
            "line 3: fairSharing has no value: write {} for the defaults, or leave it out",
        ),
        (
            "waitForPodsReady: {timeout: 300}\n",
            "line 3: waitForPodsReady.timeout must be a duration longer than 0s, such as 5m or 1h30m, not the number 300",
        ),
        (
            "waitForPodsReady: {timeout: 0s}\n",
            "line 3: waitForPodsReady.timeout must be a duration longer than 0s, such as 5m or 1h30m, not \"0s\"",
        ),
        (
            "waitForPodsReady:\n  blockAdmission: yes\n",
            "line 4: waitForPodsReady.blockAdmission must be true or false, not \"yes\"",
        ),
        (
            "waitForPodsReady: {requeuingStrategy: {backoffBaseSeconds: 1.5}}\n",
            "line 3: waitForPodsReady.requeuingStrategy.backoffBaseSeconds must be a whole number from 0 to 2147483647, \
             not the number 1.5",
        ),
        (
            "waitForPodsReady: {requeuingStrategy: {backoffMaxSeconds: 0777}}\n",
            "line 3: waitForPodsReady.requeuingStrategy.backoffMaxSeconds must be a whole number from 0 to 2147483647, \
             not \"0777\"",
        ),
        (
            "waitForPodsReady: {requeuingStrategy: {backoffMaxSeconds: 2147483648}}\n",
            "line 3: waitForPodsReady.requeuingStrategy.backoffMaxSeconds must be a whole number from 0 to 2147483647, \
             not the number 2147483648",
        ),
        (
            "fairSharing: {preemptionStrategies: []}\n",
            "line 3: fairSharing.preemptionStrategies must be [LessThanOrEqualToFinalShare], [LessThanInitialShare] or \
             [LessThanOrEqualToFinalShare, LessThanInitialShare], not []",
        ),
        (
            "fairSharing: {preemptionStrategies: LessThanInitialShare}\n",
            "line 3: fairSharing.preemptionStrategies must be [LessThanOrEqualToFinalShare], [LessThanInitialShare] or \
             [LessThanOrEqualToFinalShare, LessThanInitialShare], not \"LessThanInitialShare\"",
        ),
        (
            "admissionFairSharing: {resourceWeights: {cpu: -0.5}}\n",
            "line 3: admissionFairSharing.resourceWeights.cpu must be a number from 0 to 1000000000, such as 0.5, \
             not the number -0.5",
        ),
        (
            "admissionFairSharing: {resourceWeights: {cpu: .inf}}\n",
            "line 3: admissionFairSharing.resourceWeights.cpu must be a number from 0 to 1000000000, such as 0.5, \
             not \".inf\"",
        ),
        (
            "admissionFairSharing: {resourceWeights: {cpu: 1e40}}\n",
            "line 3: admissionFairSharing.resourceWeights.cpu must be a number from 0 to 1000000000, such as 0.5, \
             not the number 1e40",
        ),
        (
            "admissionFairSharing: {resourceWeights: [cpu]}\n",
            "line 3: admissionFairSharing.resourceWeights must be a block of resources and their weights, not a list",
        ),
        (
            "admissionFairSharing:\n  resourceWeights:\n    cpu: 1\n    cpu: 2\n",
            "line 6: admissionFairSharing.resourceWeights.cpu stands on line 5 already",
        ),
        (
            "fairSharing: {preemptionStrategies: [LessThanInitialShare]}\nfairSharing: {}\n",
            "line 4: fairSharing stands on line 3 already",
        ),
        (
            "metrics: {enableClusterQueueResource: true}\n",
            "did you mean enableClusterQueueResources?",
        ),
        (
            "FairSharing: {}\n",
            "line 3: FairSharing is not known; did you mean fairSharing?",
        ),
        ("colour: blue\n", "line 3: colour is not known"),
    ] {
        let said = said(rest);
        assert_eq!(said.len(), 1, "{rest}: {said:?}");
        assert!(said[0].ends_with(wanted), "{rest}: {said:?}");
    }
}

#[test]
fn what_cannot_be_read_is_named_with_its_line() {
    for (text, wanted) in [
        (
            "a: [1\n",
            "line 1: the file cannot be read as YAML: unclosed bracket '['",
        ),
        (
            "a: 1\nb:\n\t c: 1\n",
            "line 3: the file cannot be read as YAML: tabs disallowed",
        ),
        ("a: 1\n---\nb: 1\n", "line 3: the file holds more than one document"),
        (
            "a: *nowhere\n",
            "line 1: the file cannot be read as YAML: alias references unknown anchor",
        ),
        ("[]", "line 1: the file must be a block of fields, not a list"),
        ("hello", "line 1: the file must be a block of fields, not \"hello\""),
    ] {
        let said = said_of(text);
        assert!(said.len() == 1 && said[0].starts_with(wanted), "{text:?}: {said:?}");
    }
    let other = said_of("apiVersion: config.kueue.x-k8s.io/v1alpha1\nkind: Configuration\n");
    assert_eq!(
        other,
        [
            "line 1: apiVersion must be config.kueue.x-k8s.io/v1beta2 or config.kueue.x-k8s.io/v1beta1, \
          not \"config.kueue.x-k8s.io/v1alpha1\""
        ]
    );
}

#[test]
fn fields_of_kueue_that_are_not_acted_on_are_refused_with_a_hint() {
    for field in [
        "namespace: kueue-system",
        "manageJobsWithoutQueueName: true",
        "managedJobsNamespaceSelector: {matchLabels: {a: b}}",
        "internalCertManagement: {enable: true}",
        "internalCertManagement: {webhookServiceName: a}",
        "internalCertManagement: {webhookSecretName: a}",
        "waitForPodsReady: {maxTimeoutOnWorkload: 1h}",
        "clientConnection: {qps: 50, burst: 100}",
        "integrations: {frameworks: [batch/job, pod]}",
        "integrations: {externalFrameworks: [Foo.v1.example.com]}",
        "integrations: {labelKeysToCopy: [a]}",
        "multiKueue: {origin: a}",
        "resources: {quotaCheckStrategy: IgnoreUndeclared}",
        "resources: {excludeResourcePrefixes: [a]}",
        "resources: {transformations: [{input: a}]}",
        "resources: {deviceClassMappings: [{name: a}]}",
        "featureGates: {LendingLimit: true}",
        "objectRetentionPolicies: {workloads: {afterFinished: 1h}}",
        "visibilityServer: {bindPort: 8082}",
        "webhook: {port: 9443}",
        "webhook: {host: a}",
        "webhook: {certDir: /tls}",
        "leaderElection: {leaderElect: false}",
        "leaderElection: {resourceName: other}",
        "leaderElection: {leaseDuration: 15s}",
        "metrics: {bindAddress: ':8443'}",
        "metrics: {enableClusterQueueResources: false}",
        "metrics: {customLabels: [{name: team}]}",
        "metrics: {localQueueMetrics: {enable: false}}",
        "health: {healthProbeBindAddress: ':8081'}",
        "health: {readinessEndpointName: ready}",
        "pprofBindAddress: ':8083'",
        "controller: {groupKindConcurrency: {Job.batch: 5}}",
        "controller: {cacheSyncTimeout: 120000000000}",
        "tls: {minVersion: VersionTLS13}",
        "tls: {cipherSuites: [a]}",
        "tls: {curvePreferences: [a]}",
    ] {
        let said = said(&format!("{field}\n"));
        let name = field.split(':').next().unwrap();
        assert_eq!(said.len(), 1, "{field}: {said:?}");
        assert!(said[0].starts_with(&format!("line 3: {name}")), "{field}: {said:?}");
        assert!(said[0].contains(" is not acted on: "), "{field}: {said:?}");
    }
    for field in [
        "integrations: {podOptions: {podSelector: {}}}",
        "queueVisibility: {updateIntervalSeconds: 5}",
    ] {
        let said = said_of(&format!("{OLD_HEAD}{field}\n"));
        assert!(
            said.len() == 1 && said[0].contains(" is not acted on: "),
            "{field}: {said:?}"
        );
    }
}

#[test]
fn fields_that_say_what_sluice_does_anyway_are_accepted() {
    let text = "\
manageJobsWithoutQueueName: false
internalCertManagement: {enable: false}
integrations: {frameworks: [batch/job], externalFrameworks: [], labelKeysToCopy: null}
multiKueue: {}
resources: {quotaCheckStrategy: BlockUndeclared, excludeResourcePrefixes: []}
featureGates: {}
objectRetentionPolicies: {workloads: {}}
webhook:
leaderElection: {leaderElect: true, resourceName: c1f6bfd2.kueue.x-k8s.io, resourceLock: leases}
metrics: {enableClusterQueueResources: true, localQueueMetrics: {enable: true}}
health: {readinessEndpointName: readyz, livenessEndpointName: healthz}
pprofBindAddress: \"\"
controller: {groupKindConcurrency: {}}
tls: {minVersion: VersionTLS12, cipherSuites: []}
";
    assert_eq!(parse(&format!("{HEAD}{text}")), Ok(Configuration::default()));
}

#[test]
fn an_alias_counts_where_it_stands() {
    let read = parse(&format!(
        "{HEAD}waitForPodsReady: {{timeout: &long 2h, recoveryTimeout: *long}}\n"
    ));
    assert_eq!(
        read.unwrap().wait_for_pods_ready.unwrap().recovery_timeout,
        Some(seconds(7200))
    );
    // Ten levels of ten are ten thousand million values.
    let level = |level: i32| {
        format!(
            "a{level}: &a{level} [{}]\n",
            vec![format!("*a{}", level - 1); 10].join(", ")
        )
    };
    let levels: String = (1..10).map(level).collect();
    let bomb = format!("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n{levels}");
    assert!(said_of(&bomb)[0].contains("cannot be read as YAML"), "it was read");
    assert!(
        said_of(&"[".repeat(10_000))[0].contains("cannot be read as YAML"),
        "it was read"
    );
    assert!(
        said_of(&"#".repeat(1 << 21))[0].contains("at most 1048576 are read"),
        "it was read"
    );
}

#[test]
fn names_from_the_file_cannot_break_the_lines_of_a_log() {
    let said = said("\"a\\nline 1: b\\r\": 1\n");
    assert_eq!(said, ["line 3: a\\nline 1: b\\r is not known"]);
}

/// Text that is more often almost right than noise alone would be.
fn almost_a_file() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "waitForPodsReady",
        "timeout",
        "requeuingStrategy",
        "backoffLimitCount",
        "fairSharing",
        "preemptionStrategies",
        "admissionFairSharing",
        "resourceWeights",
        "cpu",
        "5m",
        "1e309",
        "-1",
        "LessThanInitialShare",
        "sluice",
        "kind",
        "apiVersion",
        "Configuration",
        "config.kueue.x-k8s.io/v1beta2",
        ": ",
        ":\n",
        "\n",
        "  ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "&a ",
        "*a",
        "<<: ",
        "!!binary ",
        "\"",
        "'",
        "|",
        ">",
        "#",
        "\t",
        "~",
        "true",
        "\u{feff}",
        "\u{0}",
        "é",
    ]);
    prop::collection::vec(words, 0..40).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn no_text_stops_the_reader(text in prop_oneof![any::<String>(), "\\PC*", almost_a_file()]) {
        if let Err(errors) = parse(&text) {
            prop_assert!(!errors.is_empty());
            prop_assert!(errors.is_sorted_by_key(|error| error.line));
            prop_assert!(errors.iter().all(|error| error.line >= 1 && !error.to_string().contains('\n')));
        }
    }

    #[test]
    fn counts_and_durations_are_read_as_written(limit in 0..=i32::MAX, timeout in 1..=i64::MAX, weight in 0_u64..=1_000_000_000) {
        let text = format!(
            "{HEAD}waitForPodsReady: {{timeout: {timeout}ns, requeuingStrategy: {{backoffLimitCount: {limit}}}}}\n\
             admissionFairSharing: {{resourceWeights: {{cpu: {weight}}}}}\n"
        );
        let read = parse(&text).unwrap();
        let waiting = read.wait_for_pods_ready.unwrap();
        prop_assert_eq!(waiting.timeout, Duration::from_nanos(timeout.unsigned_abs()));
        prop_assert_eq!(waiting.requeuing_strategy.backoff_limit_count, Some(limit.unsigned_abs()));
        let weights = read.admission_fair_sharing.unwrap().resource_weights;
        prop_assert_eq!(weights["cpu"], ResourceWeight(weight * 1_000_000_000));
    }
}
