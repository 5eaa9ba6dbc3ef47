# The image of a release: .goreleaser.yaml has compiled the program for each platform.
# It has no certificate authorities: the configuration names those of the store.
FROM scratch
ARG TARGETPLATFORM
COPY $TARGETPLATFORM/tenure /tenure
USER 65532:65532
ENTRYPOINT ["/tenure"]
