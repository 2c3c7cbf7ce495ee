use tidegate_adapters::buckets::memory::{MemoryBuckets, Options};
use tidegate_testkit::buckets::{Pressure, compare_buckets_with_model};

#[test]
fn it_answers_as_the_model_does() {
    compare_buckets_with_model(
        400,
        Pressure::None,
        |clock| MemoryBuckets::new(Options { buckets_max: 10_000, shards: 8 }, clock),
        MemoryBuckets::sweep,
    );
}

#[test]
fn under_pressure_nobody_gains_a_token() {
    for (buckets_max, shards) in [(1, 1), (6, 1), (16, 4)] {
        compare_buckets_with_model(
            200,
            Pressure::Evicting,
            |clock| MemoryBuckets::new(Options { buckets_max, shards }, clock),
            MemoryBuckets::sweep,
        );
    }
}
