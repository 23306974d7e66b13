"""The requests a broker may list, one entry each: key, first flexible version, request and response.

Written by hand from Kafka's protocol documentation, in the text form of codec.py. An API that a broker lists and that
is not here fails `every_listed_version_is_answered`: add it.
"""
from codec import fields

RESPONSE_HEADER_STAYS_OLD = 18  # ApiVersions: a client of any age must be able to read the answer


class Api:
    """One request and its response."""

    def __init__(self, key, name, flexible_from, request, response):
        self.key, self.name, self.flexible_from = key, name, flexible_from
        self.request, self.response = fields(request), fields(response)

    def is_compact(self, version):
        return version >= self.flexible_from


NEVER = 1000
TOPIC = "name:str@-12 id:uuid@13-"

_ROWS = [
    (0, "Produce", 9,
     f"transactional_id:str? acks:i16=-1 timeout:i32=5000 topics:[{TOPIC} partitions:[index:i32 records:bytes?]]",
     f"topics:[{TOPIC} partitions:[index:i32 error:i16 base:i64 append_time:i64@2- log_start:i64@5-"
     " record_errors:[index:i32 message:str?]@8- message:str?@8-]] throttle:i32@1-"),
    (1, "Fetch", 12,
     "replica:i32=-1@-14 max_wait:i32 min_bytes:i32 max_bytes:i32 isolation:i8 session:i32@7- session_epoch:i32=-1@7-"
     f" topics:[{TOPIC} partitions:[index:i32 leader_epoch:i32=-1@9- offset:i64 last_epoch:i32=-1@12-"
     f" log_start:i64=-1@5- max_bytes:i32]] forgotten:[{TOPIC} partitions:[i32]]@7- rack:str@11-",
     f"throttle:i32@1- error:i16@7- session:i32@7- topics:[{TOPIC} partitions:[index:i32 error:i16 high_watermark:i64"
     " last_stable:i64@4- log_start:i64@5- aborted:[producer:i64 offset:i64]?@4- preferred:i32@11- records:bytes?]]"),
    (2, "ListOffsets", 6,
     "replica:i32=-1 isolation:i8@2- topics:[name:str partitions:[index:i32 leader_epoch:i32=-1@4- timestamp:i64]]"
     " timeout:i32=5000@10-",
     "throttle:i32@2- topics:[name:str partitions:[index:i32 error:i16 timestamp:i64@1- offset:i64@1-"
     " leader_epoch:i32@4-]]"),
    (3, "Metadata", 9,
     "topics:[id:uuid@10- name:str?]? auto_create:bool@4- cluster_operations:bool@8-10 topic_operations:bool@8-",
     "throttle:i32@3- brokers:[id:i32 host:str port:i32 rack:str?@1-] cluster:str?@2- controller:i32@1-"
     " topics:[error:i16 name:str? id:uuid@10- internal:bool@1- partitions:[error:i16 index:i32 leader:i32"
     " leader_epoch:i32@7- replicas:[i32] isr:[i32] offline:[i32]@5-] operations:i32@8-] operations:i32@8-10"
     " error:i16@13-"),
    (8, "OffsetCommit", 8,
     "group:str generation:i32=-1@1- member:str@1- instance:str?@7- retention:i64=-1@2-4"
     " topics:[name:str partitions:[index:i32 offset:i64 leader_epoch:i32=-1@6- metadata:str?]]",
     "throttle:i32@3- topics:[name:str partitions:[index:i32 error:i16]]"),
    (9, "OffsetFetch", 6,
     "group:str@-7 topics:[name:str partitions:[i32]]?@-7 groups:[group:str member:str?@9- member_epoch:i32=-1@9-"
     " topics:[name:str partitions:[i32]]?]@8- stable:bool@7-",
     "throttle:i32@3- topics:[name:str partitions:[index:i32 offset:i64 leader_epoch:i32@5- metadata:str? error:i16]]@-7"
     " error:i16@2-7 groups:[group:str topics:[name:str partitions:[index:i32 offset:i64 leader_epoch:i32 metadata:str?"
     " error:i16]] error:i16]@8-"),
    (10, "FindCoordinator", 3,
     "key:str@-3 key_type:i8@1- keys:[str]@4-",
     "throttle:i32@1- error:i16@-3 message:str?@1-3 node:i32@-3 host:str@-3 port:i32@-3"
     " coordinators:[key:str node:i32 host:str port:i32 error:i16 message:str?]@4-"),
    (11, "JoinGroup", 6,
     "group:str session:i32=10000 rebalance:i32=1000@1- member:str instance:str?@5- protocol_type:str"
     " protocols:[name:str metadata:bytes] reason:str?@8-",
     "throttle:i32@2- error:i16 generation:i32 protocol_type:str?@7- protocol:str? leader:str skip:bool@9- member:str"
     " members:[id:str instance:str?@5- metadata:bytes]"),
    (12, "Heartbeat", 4,
     "group:str generation:i32 member:str instance:str?@3-",
     "throttle:i32@1- error:i16"),
    (13, "LeaveGroup", 4,
     "group:str member:str@-2 members:[id:str instance:str?@3- reason:str?@5-]@3-",
     "throttle:i32@1- error:i16 members:[id:str instance:str? error:i16]@3-"),
    (14, "SyncGroup", 4,
     "group:str generation:i32 member:str instance:str?@3- protocol_type:str?@5- protocol:str?@5-"
     " assignments:[id:str assignment:bytes]",
     "throttle:i32@1- error:i16 protocol_type:str?@5- protocol:str?@5- assignment:bytes"),
    (15, "DescribeGroups", 5,
     "groups:[str] operations:bool@3-",
     "throttle:i32@1- groups:[error:i16 message:str?@6- group:str state:str protocol_type:str protocol:str"
     " members:[id:str instance:str?@4- client:str host:str metadata:bytes assignment:bytes] operations:i32@3-]"),
    (16, "ListGroups", 3,
     "states:[str]@4- types:[str]@5-",
     "throttle:i32@1- error:i16 groups:[group:str protocol_type:str state:str@4- type:str@5-]"),
    (18, "ApiVersions", 3,
     "software:str@3- software_version:str@3-",
     "error:i16 apis:[key:i16 min:i16 max:i16] throttle:i32@1-"),
    (19, "CreateTopics", 5,
     "topics:[name:str partitions:i32 replicas:i16 assignments:[index:i32 brokers:[i32]] configs:[name:str value:str?]]"
     " timeout:i32=5000 validate_only:bool@1-",
     "throttle:i32@2- topics:[name:str id:uuid@7- error:i16 message:str?@1- partitions:i32@5- replicas:i16@5-"
     " configs:[name:str value:str? read_only:bool source:i8 sensitive:bool]?@5-]"),
    (20, "DeleteTopics", 4,
     "topics:[name:str? id:uuid]@6- names:[str]@-5 timeout:i32=5000",
     "throttle:i32@1- topics:[name:str? id:uuid@6- error:i16 message:str?@5-]"),
    (21, "DeleteRecords", 2,
     "topics:[name:str partitions:[index:i32 offset:i64]] timeout:i32=5000",
     "throttle:i32 topics:[name:str partitions:[index:i32 low_watermark:i64 error:i16]]"),
    (22, "InitProducerId", 2,
     "transactional_id:str? timeout:i32=60000 producer:i64=-1@3- epoch:i16=-1@3-",
     "throttle:i32 error:i16 producer:i64 epoch:i16"),
    (23, "OffsetForLeaderEpoch", 4,
     "replica:i32=-1@3- topics:[name:str partitions:[index:i32 leader_epoch:i32=-1@2- wanted:i32]]",
     "throttle:i32@2- topics:[name:str partitions:[error:i16 index:i32 leader_epoch:i32@1- end:i64]]"),
    (32, "DescribeConfigs", 4,
     "resources:[type:i8 name:str keys:[str]?] synonyms:bool@1- documentation:bool@3-",
     "throttle:i32 results:[error:i16 message:str? type:i8 name:str configs:[name:str value:str? read_only:bool"
     " source:i8@1- sensitive:bool synonyms:[name:str value:str? source:i8]@1- type:i8@3- documentation:str?@3-]]"),
    (37, "CreatePartitions", 2,
     "topics:[name:str count:i32 assignments:[brokers:[i32]]?] timeout:i32=5000 validate_only:bool",
     "throttle:i32 results:[name:str error:i16 message:str?]"),
    (42, "DeleteGroups", 2, "groups:[str]", "throttle:i32 results:[group:str error:i16]"),
    (44, "IncrementalAlterConfigs", 1,
     "resources:[type:i8 name:str configs:[name:str operation:i8 value:str?]] validate_only:bool",
     "throttle:i32 results:[error:i16 message:str? type:i8 name:str]"),
    (47, "OffsetDelete", NEVER,
     "group:str topics:[name:str partitions:[index:i32]]",
     "error:i16 throttle:i32 topics:[name:str partitions:[index:i32 error:i16]]"),
    (60, "DescribeCluster", 0,
     "operations:bool endpoint_type:i8=1@1- fenced:bool@2-",
     "throttle:i32 error:i16 message:str? endpoint_type:i8@1- cluster:str controller:i32"
     " brokers:[id:i32 host:str port:i32 rack:str? fenced:bool@2-] operations:i32"),
]

APIS = {row[0]: Api(*row) for row in _ROWS}
BY_NAME = {api.name: api for api in APIS.values()}
