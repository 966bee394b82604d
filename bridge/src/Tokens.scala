package org.apache.spark.sql.indextables

import scala.jdk.CollectionConverters._

import org.antlr.v4.runtime.{CharStream, CharStreams, CodePointCharStream, IntStream, Token}
import org.antlr.v4.runtime.misc.Interval

import org.apache.spark.sql.catalyst.parser.SqlBaseLexer

/** The tokens of a statement by Spark's lexer, without comments. A text or a quoted name is one token. */
class Tokens(val sql: String) {
  private val tokens: IndexedSeq[Token] = {
    val lexer = new SqlBaseLexer(new Upper(CharStreams.fromString(sql)))
    lexer.removeErrorListeners()
    lexer.getAllTokens.asScala.filter(_.getChannel == Token.DEFAULT_CHANNEL).toIndexedSeq
  }

  def size: Int = tokens.size
  def kind(place: Int): Int = if (tokens.isDefinedAt(place)) tokens(place).getType else Token.INVALID_TYPE
  def start(place: Int): Int = sql.offsetByCodePoints(0, tokens(place).getStartIndex)
  def end(place: Int): Int = sql.offsetByCodePoints(0, tokens(place).getStopIndex + 1)
  def text(place: Int): String = if (tokens.isDefinedAt(place)) sql.substring(start(place), end(place)) else ""
}

/** Makes keywords case-insensitive; Spark's own class for this is private. */
private class Upper(inner: CodePointCharStream) extends CharStream {
  override def consume(): Unit = inner.consume()
  override def getSourceName: String = inner.getSourceName
  override def index(): Int = inner.index
  override def mark(): Int = inner.mark
  override def release(marker: Int): Unit = inner.release(marker)
  override def seek(place: Int): Unit = inner.seek(place)
  override def size(): Int = inner.size
  override def getText(interval: Interval): String = inner.getText(interval)
  override def LA(ahead: Int): Int = {
    val char = inner.LA(ahead)
    if (char == 0 || char == IntStream.EOF) char else Character.toUpperCase(char)
  }
}
