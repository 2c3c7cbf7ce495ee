# The version of rust-toolchain.toml; the full image has what SQLite and the Kafka client are built with.
FROM rust:1.95.0-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY xtask xtask
COPY crates crates
# What was built and fetched before is kept beside the image, so that a change costs no more than its own crates.
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,target=/src/target,sharing=locked \
    cargo build --profile dist --locked --package tidegate \
    && strip --strip-debug -o /tidegate target/dist/tidegate

FROM debian:bookworm-slim
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
# For TLS to Kafka: the OpenSSL that its client was built with.
COPY --from=build /usr/lib/*-linux-gnu/libssl.so.3 /usr/lib/*-linux-gnu/libcrypto.so.3 /usr/lib/
COPY --from=build /tidegate /usr/local/bin/tidegate
# A number, so that "runs as non-root" can be checked from outside.
RUN install --directory --owner=10001 --group=10001 --mode=0750 /data
USER 10001:10001
# ./tidegate.toml and the default ledger, ./tidegate-data, are in here.
WORKDIR /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["tidegate", "health"]
ENTRYPOINT ["tidegate"]
CMD ["serve"]
