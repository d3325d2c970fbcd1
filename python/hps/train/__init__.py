"""Training of embedding tables in PyTorch, from the first batch to the served row.

    tables = [ht.Table("user", dim=32, optimizer=ht.Adam(lr=1e-3)), ht.Table("item", dim=32)]
    embed = ht.EmbeddingCollection(tables)
    out = embed({"user": keys, "item": (keys2, offsets2)})     # out["user"]: [batch, dim]
    loss(network(out)).backward()                              # updates the rows too
    embed.export("model")                                      # what `hps import --model` reads

PyTorch trains the dense half. Rows are updated in `backward`, so that any training loop works.
"""

from hps.train._collection import EmbeddingCollection
from hps.train._initial import Constant, Normal, TruncatedNormal, Uniform
from hps.train._keys import Keys
from hps.train._optimizers import SGD, Adagrad, Adam, Ftrl, RowwiseAdagrad
from hps.train._rows import Rows
from hps.train._table import Feature, Table
from hps.train._targets import ProducerTarget, ServerTarget, StoreTarget

__all__ = ["Adagrad", "Adam", "Constant", "EmbeddingCollection", "Feature", "Ftrl", "Keys",
           "Normal", "ProducerTarget", "Rows", "RowwiseAdagrad", "SGD", "ServerTarget",
           "StoreTarget", "Table", "TruncatedNormal", "Uniform"]


def __getattr__(name):
    # It needs Lightning, which is not installed with hps.
    if name == "LightningCheckpoint":
        from hps.train._lightning import LightningCheckpoint
        return LightningCheckpoint
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
