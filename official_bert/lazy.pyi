"""The names of `lazy.py` and their modules."""

from importlib.machinery import ModuleSpec

from official_bert.checkpoints import keras_hub as keras_hub
from official_bert.checkpoints import model_garden as model_garden
from official_bert.checkpoints import safetensors as safetensors
from official_bert.families.albert import ALBERT_FAMILY as ALBERT_FAMILY
from official_bert.families.bert import BERT_FAMILY as BERT_FAMILY
from official_bert.families.bert import CAMEMBERT as CAMEMBERT
from official_bert.families.bert import DISTILBERT_FAMILY as DISTILBERT_FAMILY
from official_bert.families.bert import ELECTRA_FAMILY as ELECTRA_FAMILY
from official_bert.families.bert import ROBERTA as ROBERTA
from official_bert.families.bert import XLM_ROBERTA as XLM_ROBERTA
from official_bert.families.deberta import DEBERTA_FAMILY as DEBERTA_FAMILY
from official_bert.families.modernbert import MODERNBERT_FAMILY as MODERNBERT_FAMILY
from official_bert.families.mpnet import MPNET_FAMILY as MPNET_FAMILY
from official_bert.modeling.albert import SharedStack as SharedStack
from official_bert.modeling.deberta import DisentangledStack as DisentangledStack
from official_bert.modeling.encoder import RobertaEmbeddings as RobertaEmbeddings
from official_bert.modeling.encoder import WordEmbeddings as WordEmbeddings
from official_bert.modeling.modernbert import PredictionHead as PredictionHead
from official_bert.modeling.modernbert import RotaryStack as RotaryStack
from official_bert.modeling.mpnet import RelativeStack as RelativeStack
from official_bert.tokenization.bpe_tokenizer import BpeTokenizer as BpeTokenizer
from official_bert.tokenization.full_tokenizer import FullTokenizer as FullTokenizer
from official_bert.tokenization.graph_operations import PythonTokenizer as PythonTokenizer
from official_bert.tokenization.graph_sentencepiece import GraphSentencePieceTokenizer as GraphSentencePieceTokenizer
from official_bert.tokenization.graph_tokenizer import GraphTokenizer as GraphTokenizer
from official_bert.tokenization.sentencepiece_tokenizer import CamembertTokenizer as CamembertTokenizer
from official_bert.tokenization.sentencepiece_tokenizer import DebertaTokenizer as DebertaTokenizer
from official_bert.tokenization.sentencepiece_tokenizer import SentencePieceTokenizer as SentencePieceTokenizer
from official_bert.tokenization.sentencepiece_tokenizer import XlmRobertaTokenizer as XlmRobertaTokenizer

def listed_names(spec: ModuleSpec) -> dict[str, str]: ...
