"""The public names and their modules: `__init__.py` imports each on first use."""

from official_bert.config.bert_config import BertConfig as BertConfig
from official_bert.data.corpus_files import CorpusReader as CorpusReader
from official_bert.data.corpus_files import corpus_parts as corpus_parts
from official_bert.data.pipeline import DatasetTokenizer as DatasetTokenizer
from official_bert.families.albert import AlbertConfig as AlbertConfig
from official_bert.families.bert import DistilBertConfig as DistilBertConfig
from official_bert.families.bert import ElectraConfig as ElectraConfig
from official_bert.inference.attention_reader import AttentionReader as AttentionReader
from official_bert.inference.finished_runs import export as export
from official_bert.inference.finished_runs import load_export as load_export
from official_bert.inference.predictor import Predictor as Predictor
from official_bert.inference.sentence_index import VectorIndex as VectorIndex
from official_bert.inference.user_models import save_model as save_model
from official_bert.metrics.retrieval import retrieval_scores as retrieval_scores
from official_bert.modeling.encoder import BertEncoder as BertEncoder
from official_bert.modeling.heads import ClassificationModel as ClassificationModel
from official_bert.modeling.heads import MultipleChoiceModel as MultipleChoiceModel
from official_bert.modeling.heads import SpanModel as SpanModel
from official_bert.modeling.pretraining import PretrainingModel as PretrainingModel
from official_bert.modeling.pretraining import ReplacedTokenModel as ReplacedTokenModel
from official_bert.modeling.sentence import SentenceModel as SentenceModel
from official_bert.modeling.tagging import TaggingModel as TaggingModel
from official_bert.optimization import AdamWeightDecay as AdamWeightDecay
from official_bert.optimization import Lamb as Lamb
from official_bert.optimization import LinearWarmupThenConstant as LinearWarmupThenConstant
from official_bert.optimization import LinearWarmupThenCosine as LinearWarmupThenCosine
from official_bert.optimization import LinearWarmupThenDecay as LinearWarmupThenDecay
from official_bert.tokenization import FullTokenizer as FullTokenizer
from official_bert.tokenization import SentencePieceTokenizer as SentencePieceTokenizer
from official_bert.tokenization import load_tokenizer as load_tokenizer
from official_bert.training.loop import Trainer as Trainer
from official_bert.training.task import Task as Task
from official_bert.training.task import TrainingPlan as TrainingPlan
from official_bert.training.task import WeightedSum as WeightedSum

__version__: str
