"""The gRPC protocol that the server is built from is that of Triton's client, number by number."""

import pathlib
import subprocess
import tempfile
import unittest

from google.protobuf import descriptor_pb2
from tritonclient.grpc import model_config_pb2, service_pb2

import support

PROTO = support.ROOT / "src" / "server" / "grpc" / "proto" / "inference.proto"


def of_the_server() -> list:
    with tempfile.TemporaryDirectory(prefix="hps_protocol_") as directory:
        out = pathlib.Path(directory) / "descriptors"
        subprocess.run(["protoc", f"--proto_path={PROTO.parent}", f"--descriptor_set_out={out}",
                        PROTO.name], check=True, timeout=60)
        return list(descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file)


def of_the_client() -> list:
    files = []
    for module in (service_pb2, model_config_pb2):
        files.append(descriptor_pb2.FileDescriptorProto())
        module.DESCRIPTOR.CopyToProto(files[-1])
    return files


class Protocol:
    """Full names -> what goes over the wire."""

    def __init__(self, files: list) -> None:
        self.messages: set = set()
        self.fields: dict = {}
        self.enum_values: dict = {}
        self.methods: dict = {}
        for file in files:
            scope = f".{file.package}"
            for enum in file.enum_type:
                self.add_enum(scope, enum)
            for message in file.message_type:
                self.add_message(scope, message)
            for service in file.service:
                for method in service.method:
                    self.methods[f"{scope}.{service.name}/{method.name}"] = (
                        method.input_type, method.output_type, method.client_streaming,
                        method.server_streaming)

    def add_enum(self, scope: str, enum) -> None:
        for value in enum.value:
            self.enum_values[f"{scope}.{enum.name}.{value.name}"] = value.number

    def add_message(self, scope: str, message) -> None:
        name = f"{scope}.{message.name}"
        self.messages.add((name, message.options.map_entry))
        for field in message.field:
            group = message.oneof_decl[field.oneof_index].name \
                if field.HasField("oneof_index") else None
            self.fields[f"{name}.{field.name}"] = (field.number, field.type, field.label,
                                                   field.type_name, group)
        for enum in message.enum_type:
            self.add_enum(name, enum)
        for nested in message.nested_type:
            self.add_message(name, nested)


class ProtocolTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls) -> None:
        cls.ours, cls.theirs = Protocol(of_the_server()), Protocol(of_the_client())

    def assert_within(self, ours: dict, theirs: dict, count_min: int) -> None:
        self.assertGreaterEqual(len(ours), count_min)
        for name, what in ours.items():
            with self.subTest(name):
                self.assertEqual(what, theirs.get(name))

    def test_messages(self) -> None:
        self.assertGreaterEqual(len(self.ours.messages), 40)
        self.assertEqual(self.ours.messages - self.theirs.messages, set())

    def test_fields(self) -> None:
        self.assert_within(self.ours.fields, self.theirs.fields, 120)

    def test_enum_values(self) -> None:
        self.assert_within(self.ours.enum_values, self.theirs.enum_values, 15)

    def test_methods(self) -> None:
        self.assert_within(self.ours.methods, self.theirs.methods, 12)

    def test_a_number_that_differs_is_seen(self) -> None:
        files = of_the_server()
        request = next(message for message in files[0].message_type
                       if message.name == "ModelInferRequest")
        request.field[0].number += 100
        differing = {name for name, what in Protocol(files).fields.items()
                     if what != self.theirs.fields[name]}
        self.assertEqual(differing, {".inference.ModelInferRequest.model_name"})


if __name__ == "__main__":
    unittest.main()
