//! BrokerRegistration: a broker process makes itself known and gets its broker epoch.

use std::collections::BTreeMap;

use sakia_controller::ProposeError;
use sakia_controller::command::{ConfigChange, ConfigOperation, RegisterBroker, SetConfigs};
use sakia_controller::image::{ConfigResource, FeatureRange, Listener, SecurityProtocol};
use sakia_protocol::api::error::ErrorCode;
use sakia_protocol::ids::{BrokerEpoch, BrokerId, Uuid};
use sakia_protocol::messages::broker_registration::{BrokerRegistrationRequest, BrokerRegistrationResponse};
use tracing::{info, warn};

use super::ControllerApi;

const MIN_INSYNC: &str = "min.insync.replicas";

impl ControllerApi {
    pub(super) async fn register_broker(&self, body: BrokerRegistrationRequest) -> BrokerRegistrationResponse {
        let broker = body.broker_id;
        let (error, epoch) = match self.registered(body).await {
            Ok(epoch) => (ErrorCode::None, Some(epoch)),
            Err(code) => {
                info!(broker, code = code.name(), "a broker was not registered");
                (code, None)
            }
        };
        let (error_code, broker_epoch) = (error.code(), BrokerEpoch::to_wire(epoch));
        BrokerRegistrationResponse { error_code, broker_epoch, ..BrokerRegistrationResponse::default() }
    }

    async fn registered(&self, body: BrokerRegistrationRequest) -> Result<BrokerEpoch, ErrorCode> {
        let code = |error: ProposeError| ErrorCode::from_wire(error.code());
        self.activation().await.map_err(code)?;
        let cluster_id = self.controller.image().cluster_id.clone();
        if !body.cluster_id.is_empty() && body.cluster_id != cluster_id {
            warn!(broker = body.broker_id, theirs = body.cluster_id, ours = cluster_id, "a broker of another cluster");
            return Err(ErrorCode::InconsistentClusterId);
        }
        let command = command(body)?;
        self.publish_min_insync().await.map_err(code)?;
        self.controller.register(command).await.map_err(code)
    }

    /// Elections follow the cluster's value of min.insync.replicas, leaders that of their settings: the controller must
    /// have it in its log before a topic exists, and no topic exists before the first registration. The settings file
    /// is the only place where the value can be set for the whole cluster.
    async fn publish_min_insync(&self) -> Result<(), ProposeError> {
        let wanted = self.settings.topic_defaults.min_insync;
        let image = self.controller.image();
        let present = image.configs.get(&ConfigResource::Cluster).and_then(|configs| configs.get(MIN_INSYNC));
        let is_known = present.map_or(wanted == 1, |text| *text == wanted.to_string());
        if is_known {
            return Ok(());
        }
        info!(value = wanted, "min.insync.replicas of the cluster");
        let (name, value) = (MIN_INSYNC.to_owned(), wanted.to_string());
        let changes = vec![ConfigChange { name, operation: ConfigOperation::Set, value }];
        self.controller.propose(SetConfigs { resource: ConfigResource::Cluster, changes }).await.map(|_| ())
    }
}

fn command(body: BrokerRegistrationRequest) -> Result<RegisterBroker, ErrorCode> {
    let broker = BrokerId::from_wire(body.broker_id).ok_or(ErrorCode::InvalidRegistration)?;
    if body.is_migrating_zk_broker || body.incarnation_id.is_zero() || body.listeners.is_empty() {
        return Err(ErrorCode::InvalidRegistration);
    }
    let mut listeners = Vec::new();
    for listener in body.listeners {
        let protocol = SecurityProtocol::from_wire(listener.security_protocol).ok_or(ErrorCode::InvalidRegistration)?;
        listeners.push(Listener { name: listener.name, host: listener.host, port: listener.port, protocol });
    }
    let mut features = BTreeMap::new();
    for feature in body.features {
        let range = FeatureRange { min: feature.min_supported_version, max: feature.max_supported_version };
        if range.min > range.max || features.insert(feature.name, range).is_some() {
            return Err(ErrorCode::InvalidRegistration);
        }
    }
    Ok(RegisterBroker {
        broker,
        incarnation: body.incarnation_id,
        previous_broker_epoch: BrokerEpoch::from_wire(body.previous_broker_epoch),
        boot_id: body.boot_id.as_deref().and_then(parse_boot_id).unwrap_or(Uuid::ZERO),
        log_folders: body.log_dirs,
        rack: body.rack,
        listeners,
        features,
    })
}

/// Linux writes 32 hexadecimal digits with dashes.
fn parse_boot_id(text: &str) -> Option<Uuid> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = Vec::with_capacity(16);
    for pair in digits.chunks(2) {
        let [high, low] = pair else { return None };
        bytes.push(digit(*high)? << 4 | digit(*low)?);
    }
    bytes.try_into().ok().map(Uuid::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_ids_are_read_as_linux_writes_them() {
        let id = parse_boot_id("00112233-4455-6677-8899-aabbccddeeff").unwrap();
        assert_eq!(id.as_bytes()[..4], [0, 0x11, 0x22, 0x33]);
        assert_eq!(id.as_bytes()[15], 0xff);
        for bad in ["", "0011", "00112233-4455-6677-8899-aabbccddeeffaa", "zz112233-4455-6677-8899-aabbccddeeff", "001"]
        {
            assert_eq!(parse_boot_id(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_registration_without_listener_or_with_a_reversed_feature_is_refused() {
        use sakia_protocol::messages::broker_registration as wire;
        let listener = wire::Listener { name: "PLAINTEXT".into(), host: "b1".into(), port: 9092, security_protocol: 0 };
        let good = BrokerRegistrationRequest {
            incarnation_id: Uuid::from_bytes([1; 16]),
            listeners: vec![listener],
            ..BrokerRegistrationRequest::default()
        };
        assert!(command(good.clone()).is_ok());
        assert!(command(BrokerRegistrationRequest { listeners: Vec::new(), ..good.clone() }).is_err());
        let feature = wire::Feature { name: "f".into(), min_supported_version: 2, max_supported_version: 1 };
        assert!(command(BrokerRegistrationRequest { features: vec![feature], ..good }).is_err());
    }
}
