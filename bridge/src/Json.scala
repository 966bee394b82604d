package org.apache.spark.sql.indextables

import java.util

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

/** JSON of requests and replies. */
object Json {
  private val mapper = new ObjectMapper()

  /** An object with these members, in this order. Members that are None are left out. */
  def obj(members: (String, Any)*): util.Map[String, Any] = {
    val json = new util.LinkedHashMap[String, Any]()
    members.foreach {
      case (_, None) =>
      case (name, Some(value)) => json.put(name, value)
      case (name, value) => json.put(name, value)
    }
    json
  }

  def text(value: Any): String = mapper.writeValueAsString(value)

  def parse(bytes: Array[Byte]): JsonNode = mapper.readTree(bytes)

  def parse(text: String): JsonNode = mapper.readTree(text)
}
