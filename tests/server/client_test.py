"""Triton's official Python client can't tell the server from Triton: HTTP, gRPC and asyncio."""

import asyncio
import importlib
import queue
import re
import unittest

import numpy as np
import tritonclient.http as http_client

import support
from support import MODEL, ROWS, TABLES
from waiting import WAIT_S, await_true


def input_of(client, name: str, array: np.ndarray, binary: bool = True):
    datatype = {"int64": "INT64", "int32": "INT32", "uint64": "UINT64",
                "float32": "FP32"}[str(array.dtype)]
    made = client.InferInput(name, list(array.shape), datatype)
    if client.__name__.startswith("tritonclient.http"):
        made.set_data_from_numpy(array, binary_data=binary)
    else:
        made.set_data_from_numpy(array)
    return made


class ClientCases:
    """What both protocols must do alike; a subclass gives `module` and `connect`."""

    module = None
    server = None

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.case = support.ServerTestCase()
        cls.case.setUp()
        cls.addClassCleanup(cls.case.doCleanups)
        cls.server = cls.case.serve_ready()
        cls.client = cls.connect()

    def infer(self, inputs: dict, outputs: list | None = None, model=MODEL, **more):
        wanted = [self.module.InferRequestedOutput(name) for name in outputs] if outputs else None
        return self.client.infer(
            model, [input_of(self.module, name, array) for name, array in inputs.items()],
            outputs=wanted, **more)

    def refuse(self, inputs: dict, *parts: str, **more) -> str:
        with self.assertRaises(Exception) as caught:
            self.infer(inputs, **more)
        message = str(caught.exception)
        for part in parts:
            self.assertIn(part, message)
        return message

    def test_health_and_metadata(self) -> None:
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready(MODEL))
        self.assertTrue(self.client.is_model_ready(MODEL, "1"))
        self.assertFalse(self.client.is_model_ready("none"))
        server = self.as_dict(self.client.get_server_metadata())
        self.assertEqual(server["name"], "hps")
        version = re.search(r"^project\(hps VERSION (\S+)",
                            (support.ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)[1]
        self.assertEqual(server["version"], version)
        self.assertEqual(sorted(server["extensions"]),
                         ["binary_tensor_data", "model_configuration", "model_repository",
                          "parameters", "statistics"])
        model = self.as_dict(self.client.get_model_metadata(MODEL))
        self.assertEqual(model["name"], MODEL)
        inputs = {tensor["name"]: tensor for tensor in model["inputs"]}
        outputs = {tensor["name"]: tensor for tensor in model["outputs"]}
        for table, dim in TABLES.items():
            self.assertEqual(inputs[table]["datatype"], "INT64")
            self.assertEqual(outputs[table]["datatype"], "FP32")
            self.assertEqual(int(outputs[table]["shape"][-1]), dim)
            self.assertEqual(outputs[table + ".status"]["datatype"], "UINT8")
        self.assertEqual((inputs["KEYS"]["datatype"], inputs["NUMKEYS"]["datatype"]),
                         ("INT64", "INT32"))
        self.assertEqual([int(dim) for dim in inputs["NUMKEYS"]["shape"]], [1, len(TABLES)])
        self.assertEqual(outputs["OUTPUT0"]["datatype"], "FP32")
        self.assertEqual(len(inputs), len(TABLES) + 2)
        self.assertEqual(len(outputs), 2 * len(TABLES) + 1)
        config = self.as_dict(self.client.get_model_config(MODEL))
        config = config.get("config", config)
        self.assertEqual({tensor["name"] for tensor in config["input"]}, set(inputs))
        self.assertEqual({tensor["name"] for tensor in config["output"]}, set(outputs))
        self.assertTrue(all(tensor["optional"] for tensor in config["input"]))

    def test_every_output_with_the_inputs_of_either_way(self) -> None:
        model = self.as_dict(self.client.get_model_metadata(MODEL))
        names = [tensor["name"] for tensor in model["outputs"]]
        keys = {"user": self.case.keys(3), "item": self.case.keys(5)}
        keys["item"][1] = -7  # absent
        for inputs in (dict(reversed(keys.items())),
                       {"KEYS": np.concatenate([keys[table] for table in TABLES]).reshape(1, -1),
                        "NUMKEYS": np.array([[len(keys[table]) for table in TABLES]],
                                            dtype=np.int32)}):
            answer = self.infer(inputs, names)
            for table in TABLES:
                rows, status = answer.as_numpy(table), answer.as_numpy(table + ".status")
                present = keys[table] >= 0
                self.assertEqual((status != 0).tolist(), present.tolist())
                self.case.assert_stamped(table, keys[table][present], rows[present])
            joint = np.concatenate([answer.as_numpy(table).reshape(-1) for table in TABLES])
            np.testing.assert_array_equal(answer.as_numpy("OUTPUT0"), joint)
        only = self.infer({"item": keys["item"]}, ["OUTPUT0"]).as_numpy("OUTPUT0")
        np.testing.assert_array_equal(only, self.infer(keys).as_numpy("item").reshape(-1))

    def test_configuration_index_and_statistics(self) -> None:
        config = self.as_dict(self.client.get_model_config(MODEL))
        config = config.get("config", config)
        self.assertEqual(config["name"], MODEL)
        index = self.as_dict(self.client.get_model_repository_index())
        index = index["models"] if isinstance(index, dict) else index
        self.assertEqual([(model["name"], model["state"]) for model in index], [(MODEL, "READY")])
        before = self.count_of_successes()
        self.infer({"user": self.case.keys(3)})
        # It is counted when its answer has been sent.
        await_true(lambda: self.count_of_successes() > before, "counted request")

    def count_of_successes(self) -> int:
        statistics = self.as_dict(self.client.get_inference_statistics(MODEL))
        return int(statistics["model_stats"][0]["inference_stats"]["success"].get("count", 0))

    def test_rows_by_table_in_every_shape(self) -> None:
        for shape in [(1,), (31,), (32,), (33,), (1000,), (4, 5), (1, 1), (0,), (7, 0)]:
            keys = self.case.keys(*shape)
            answer = self.infer({"user": keys, "item": keys})
            for table in TABLES:
                with self.subTest(shape=shape, table=table):
                    self.case.assert_stamped(table, keys, answer.as_numpy(table))

    def test_statuses_only_when_asked_for(self) -> None:
        keys = np.array([1, ROWS, -1, 2, np.iinfo(np.int64).min], dtype=np.int64)
        answer = self.infer({"item": keys}, ["item", "item.status"])
        status = answer.as_numpy("item.status")
        self.assertEqual(status.dtype, np.uint8)
        self.assertEqual([code != 0 for code in status], [True, False, False, True, False])
        rows = answer.as_numpy("item")
        self.case.assert_stamped("item", keys[[0, 3]], rows[[0, 3]])
        np.testing.assert_array_equal(rows[[1, 2, 4]], np.full((3, TABLES["item"]), -1.0))
        self.assertIsNone(self.infer({"item": keys}).as_numpy("item.status"))

    def test_the_original_convention(self) -> None:
        user, item = self.case.keys(3), self.case.keys(5)
        answer = self.infer({"KEYS": np.concatenate([user, item]).reshape(1, -1),
                             "NUMKEYS": np.array([[3, 5]], dtype=np.int32)}, ["OUTPUT0"])
        rows = answer.as_numpy("OUTPUT0").reshape(-1)
        split = 3 * TABLES["user"]
        self.case.assert_stamped("user", user, rows[:split].reshape(3, -1))
        self.case.assert_stamped("item", item, rows[split:].reshape(5, -1))

    def test_statuses_of_the_original_convention(self) -> None:
        user, item = self.case.keys(3), self.case.keys(2)
        keys = np.concatenate([user, [-7], item]).reshape(1, -1)
        answer = self.infer({"KEYS": keys, "NUMKEYS": np.array([[4, 2]], dtype=np.int32)},
                            ["OUTPUT0", "OUTPUT0.status"])
        statuses = answer.as_numpy("OUTPUT0.status")
        self.assertEqual(statuses.dtype, np.uint8)
        self.assertEqual([status != 0 for status in statuses.tolist()],
                         [True, True, True, False, True, True])
        rows = answer.as_numpy("OUTPUT0").reshape(-1)
        self.case.assert_stamped("item", item, rows[4 * TABLES["user"]:].reshape(2, -1))

    def test_unsigned_keys_are_taken_bit_for_bit(self) -> None:
        keys = np.array([5, 2**64 - 1, 2**63], dtype=np.uint64)
        rows = self.infer({"user": keys}).as_numpy("user")
        self.case.assert_stamped("user", np.array([5]), rows[:1])
        np.testing.assert_array_equal(rows[1:], np.full((2, TABLES["user"]), -1.0))

    def test_the_id_is_echoed(self) -> None:
        answer = self.infer({"user": self.case.keys(2)}, request_id="request 1/ä")
        response = answer.get_response()
        self.assertEqual(response["id"] if isinstance(response, dict) else response.id,
                         "request 1/ä")

    def test_mistakes_name_what_is_wrong(self) -> None:
        keys = self.case.keys(4)
        self.refuse({"users": keys}, "user")
        self.refuse({"user": keys.astype(np.float32)}, "FP32")
        self.refuse({"user": keys}, "ctr", model="ctrl")
        self.refuse({"user": keys}, "items", outputs=["items"])
        self.refuse({"user": keys}, "99", model_version="99")
        self.refuse({"KEYS": keys.reshape(1, -1), "NUMKEYS": np.array([[1, 1]], dtype=np.int32)})
        self.refuse({"KEYS": keys.reshape(1, -1)}, "NUMKEYS")
        self.case.assert_stamped("user", keys, self.infer({"user": keys}).as_numpy("user"))

    def test_control_is_off(self) -> None:
        with self.assertRaises(Exception):
            self.client.unload_model(MODEL)
        self.assertTrue(self.client.is_model_ready(MODEL))

    def test_what_is_not_served_is_refused_clearly(self) -> None:
        """Shared memory in every form, and classification: the client hears UNIMPLEMENTED."""
        keys = self.case.keys(2)
        shared = self.module.InferInput("user", [2], "INT64")
        shared.set_shared_memory("region", 16)
        output = self.module.InferRequestedOutput("user")
        output.set_shared_memory("region", 64)
        classes = self.module.InferRequestedOutput("user", class_count=2)
        own = input_of(self.module, "user", keys)
        for what, word in (
                (lambda: self.client.register_system_shared_memory("region", "/region", 64),
                 "shared memory"),
                (lambda: self.client.get_cuda_shared_memory_status(), "shared memory"),
                (lambda: self.client.infer(MODEL, [shared]), "shared memory"),
                (lambda: self.client.infer(MODEL, [own], outputs=[output]), "shared memory"),
                (lambda: self.client.infer(MODEL, [own], outputs=[classes]), "classification")):
            with self.assertRaises(Exception) as caught:
                what()
            self.assertIn(word, str(caught.exception))
            self.assertIn(str(caught.exception.status()), ("501", "StatusCode.UNIMPLEMENTED"))
        self.case.assert_stamped("user", keys, self.infer({"user": keys}).as_numpy("user"))


class HttpClientTest(ClientCases, unittest.TestCase):

    module = http_client

    @classmethod
    def connect(cls):
        return http_client.InferenceServerClient(cls.server.http, concurrency=4)

    @staticmethod
    def as_dict(answer):
        return answer

    def test_json_and_binary_in_both_directions(self) -> None:
        keys = self.case.keys(3, 4)
        for sent in (True, False):
            for received in (True, False):
                with self.subTest(sent=sent, received=received):
                    answer = self.client.infer(
                        MODEL, [input_of(http_client, "user", keys, sent)],
                        outputs=[http_client.InferRequestedOutput("user", binary_data=received)])
                    self.case.assert_stamped("user", keys, answer.as_numpy("user"))

    def test_compressed_bodies(self) -> None:
        keys = self.case.keys(2000)
        for coding in ("gzip", "deflate"):
            answer = self.infer({"item": keys}, request_compression_algorithm=coding,
                                response_compression_algorithm=coding)
            with self.subTest(coding):
                self.case.assert_stamped("item", keys, answer.as_numpy("item"))

    def test_many_requests_at_once(self) -> None:
        batches = [self.case.keys(64) for _ in range(40)]
        pending = [self.client.async_infer(MODEL, [input_of(http_client, "item", keys)])
                   for keys in batches]
        for keys, request in zip(batches, pending):
            self.case.assert_stamped("item", keys, request.get_result().as_numpy("item"))

    def test_asyncio(self) -> None:
        aio = importlib.import_module("tritonclient.http.aio")

        async def ask() -> None:
            async with aio.InferenceServerClient(self.server.http) as client:
                batches = [self.case.keys(50) for _ in range(20)]
                answers = await asyncio.gather(*(
                    client.infer(MODEL, [input_of(http_client, "user", keys)]) for keys in batches))
                for keys, answer in zip(batches, answers):
                    self.case.assert_stamped("user", keys, answer.as_numpy("user"))

        asyncio.run(ask())


@unittest.skipUnless(support.has_grpc(), "this build has no gRPC")
class GrpcClientTest(ClientCases, unittest.TestCase):

    @classmethod
    def connect(cls):
        cls.module = importlib.import_module("tritonclient.grpc")
        return cls.module.InferenceServerClient(cls.server.grpc)

    @classmethod
    def as_dict(cls, answer):
        json_format = importlib.import_module("google.protobuf.json_format")
        return json_format.MessageToDict(answer, preserving_proto_field_name=True,
                                         always_print_fields_with_no_presence=True)

    def test_a_stream_answers_in_order_and_goes_on_after_an_error(self) -> None:
        answers = queue.Queue()
        self.client.start_stream(callback=lambda result, error: answers.put((result, error)))
        batches = [self.case.keys(20) for _ in range(10)]
        for number, keys in enumerate(batches):
            self.client.async_stream_infer(MODEL, [input_of(self.module, "item", keys)],
                                           request_id=str(number))
            self.client.async_stream_infer(MODEL, [input_of(self.module, "none", keys)])
        for number, keys in enumerate(batches):
            result, error = answers.get(timeout=WAIT_S)
            self.assertIsNone(error)
            self.assertEqual(result.get_response().id, str(number))
            self.case.assert_stamped("item", keys, result.as_numpy("item"))
            result, error = answers.get(timeout=WAIT_S)
            self.assertIn("no input 'none'", str(error))
        self.client.stop_stream()

    def test_compression(self) -> None:
        keys = self.case.keys(2000)
        for coding in ("gzip", "deflate"):
            answer = self.infer({"item": keys}, compression_algorithm=coding)
            with self.subTest(coding):
                self.case.assert_stamped("item", keys, answer.as_numpy("item"))

    def test_asyncio(self) -> None:
        aio = importlib.import_module("tritonclient.grpc.aio")

        async def ask() -> None:
            async with aio.InferenceServerClient(self.server.grpc) as client:
                batches = [self.case.keys(50) for _ in range(20)]
                answers = await asyncio.gather(*(
                    client.infer(MODEL, [input_of(self.module, "user", keys)]) for keys in batches))
                for keys, answer in zip(batches, answers):
                    self.case.assert_stamped("user", keys, answer.as_numpy("user"))

        asyncio.run(ask())


@unittest.skipUnless(support.has_grpc(), "this build has no gRPC")
class ParityTest(support.ServerTestCase):
    """Both protocols say the same of the server and its models."""

    def assert_alike(self, over_http, over_grpc, where: str) -> None:
        """What both have is equal; gRPC leaves out nothing that is not empty."""
        if isinstance(over_http, dict):
            self.assertIsInstance(over_grpc, dict, where)
            for name in over_grpc:
                if over_grpc[name] or name in over_http:
                    self.assert_alike(over_http.get(name), over_grpc[name], f"{where}.{name}")
        elif isinstance(over_http, list):
            self.assertEqual(len(over_http), len(over_grpc), where)
            for index, (one, other) in enumerate(zip(over_http, over_grpc)):
                self.assert_alike(one, other, f"{where}[{index}]")
        elif isinstance(over_grpc, str) and not isinstance(over_http, str):
            self.assertEqual(str(over_http), over_grpc, where)  # 64-bit numbers of protobuf's JSON
        else:
            self.assertEqual(over_http, over_grpc, where)

    def test_metadata_configuration_and_statistics(self) -> None:
        server = self.serve_ready()
        grpc_client = importlib.import_module("tritonclient.grpc")
        with http_client.InferenceServerClient(server.http) as one, \
                grpc_client.InferenceServerClient(server.grpc) as other:
            one.infer(MODEL, [input_of(http_client, "user", self.keys(3))])
            for name in ("get_server_metadata", "get_model_metadata", "get_model_config",
                         "get_model_repository_index"):
                self.assert_same(name, one, other)
            # The time that a request took is counted last, when its answer has been sent.
            await_true(lambda: one.get_inference_statistics(MODEL)["model_stats"][0]
                       ["inference_stats"]["success"]["ns"], "counted request")
            self.assert_same("get_inference_statistics", one, other)

    def assert_same(self, name: str, one, other) -> None:
        about = (MODEL,) if name in ("get_model_metadata", "get_model_config",
                                     "get_inference_statistics") else ()
        over_http = getattr(one, name)(*about)
        over_grpc = GrpcClientTest.as_dict(getattr(other, name)(*about))
        over_grpc = over_grpc.get("config", over_grpc.get("models", over_grpc))
        self.assert_alike(over_http, over_grpc, name)


if __name__ == "__main__":
    unittest.main()
